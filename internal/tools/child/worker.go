package child

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Worker is a process that its starter talks to: In is its standard input, Out its standard
// output. Out ends when the process has; what it wrote before a SIGKILL can still be read.
type Worker struct {
	*Process
	In, Out *os.File // the starter closes them
}

// StartWorker starts a program as Start does, with pipes; standard error goes to the log.
func StartWorker(ctx context.Context, dir, name string, env []string, program string, args ...string) (*Worker, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, errors.Join(err, childIn.Close(), in.Close()))
	}
	p, err := start(ctx, dir, name, env, childIn, childOut, program, args)
	err = errors.Join(err, childIn.Close(), childOut.Close()) // the child has its own
	if err != nil {
		if p != nil {
			p.Kill()
		}
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return &Worker{Process: p, In: in, Out: out}, nil
}
