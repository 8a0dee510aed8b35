// Package e2e holds the tests that need the whole product at once: real coordinators (in this
// process, or as processes of their own that are killed), a real Redis, SDK clients, and a
// client that speaks as those of the reference implementation do.
package e2e
