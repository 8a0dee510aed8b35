package provider

import (
	"context"
	"fmt"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// claims keeps creations and destroys of one name, within one run of Terraform, out of each other's
// way. The coordinator knows objects by their names alone, Terraform by addresses: a replacement
// with create_before_destroy, and a resource whose address was changed without a moved block, are
// to Terraform two objects of which one is made and the other destroyed, in either order or at once.
// The zero value is ready.
type claims struct {
	mu    sync.Mutex
	known map[string]*claim
	state map[string]bool // labels of what was read for a state
}

// sawState notes that the state of this run has what is called label. Only a plan reads a state.
func (c *claims) sawState(label string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		c.state = map[string]bool{}
	}
	c.state[label] = true
}

// inState says whether the state of this run is known to have what is called label. Terraform reads the
// old address of an object and plans the new one at once, so that it may come to be known too late.
func (c *claims) inState(label string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[label]
}

// claim is one name in this run.
type claim struct {
	turn    chan struct{} // holds one token: whose it is
	made    bool          // created, or taken over, by this run
	refused bool          // this run was to create it, and has found it taken
}

// enter waits for the turn of what is called label, such as `stream "orders"`, and returns how to
// end it.
func (c *claims) enter(ctx context.Context, label string) (*claim, func(), error) {
	c.mu.Lock()
	if c.known == nil {
		c.known = map[string]*claim{}
	}
	one := c.known[label]
	if one == nil {
		one = &claim{turn: make(chan struct{}, 1)}
		c.known[label] = one
	}
	c.mu.Unlock()
	select {
	case one.turn <- struct{}{}:
		return one, func() { <-one.turn }, nil
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("waiting for another resource of this run that makes or destroys %s: %w", label, ctx.Err())
	}
}

// claim waits for the turn of what is called label. When this run has given the name away already,
// or the waiting ends before, it says so, by taken or as the failure of what, and returns nil.
func (c *connection) claim(ctx context.Context, what, label string, taken func(label string) diag.Diagnostic, diags *diag.Diagnostics) (*claim, func()) {
	one, leave, err := c.claims.enter(ctx, label)
	if err != nil {
		diags.Append(c.diagnose(what, err))
		return nil, nil
	}
	if one.made {
		leave()
		diags.Append(taken(label))
		return nil, nil
	}
	return one, leave
}

// claimToDestroy is claim for a destroy. What a creation of this run was refused for is not destroyed
// either: its address was changed without a moved block, together with its settings.
func (c *connection) claimToDestroy(ctx context.Context, what, label string, diags *diag.Diagnostics) (*claim, func()) {
	one, leave := c.claim(ctx, what, label, stays, diags)
	if one != nil && one.refused {
		leave()
		diags.AddError("Not destroyed: another resource was to have it", fmt.Sprintf(
			"A resource of this run was to create %s, and was refused because it exists. It was left as it is. If its address was changed, say so in a moved block; else apply again.", label))
		return nil, nil
	}
	return one, leave
}

// twice is the refusal of a second resource of one name.
func twice(label string) diag.Diagnostic {
	return diag.NewErrorDiagnostic("Two resources of one name", fmt.Sprintf(
		"Another resource of this configuration has just made %s. One object is one resource: remove one of the two, or give it a name of its own.", label))
}

// stays is the warning of a destroy that is none.
func stays(label string) diag.Diagnostic {
	return diag.NewWarningDiagnostic("Not destroyed: another resource has it now", fmt.Sprintf(
		"A resource of this run was given %s before its former one was destroyed: by create_before_destroy without a change of name, or by a change of address without a moved block. "+
			"The coordinator knows it by its name alone, so it was left as it is, with all that it holds, and belongs to the new resource. Nothing was replaced.", label))
}
