// Package archtest holds tests of the repository itself: which package reaches which, and
// whether the scenarios of the protocol pages are tests.
package archtest
