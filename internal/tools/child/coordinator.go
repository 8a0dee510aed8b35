package child

import (
	"context"
	"fmt"
	"net/http"
)

// Coordinator says how to start one.
type Coordinator struct {
	Program            string // path of redis-stream-coordinator
	Dir                string // of its log
	Addr               string // host:port to listen on
	RedisURL           string
	Username, Password string // of the administrator
	Env                []string
}

// StartCoordinator starts a coordinator as a process of its own and returns when /readyz says yes.
func StartCoordinator(ctx context.Context, c Coordinator) (*Process, error) {
	// The password goes by the environment: everybody on the machine can read arguments.
	env := append([]string{"RSC_ADMIN_USERNAME=" + c.Username, "RSC_ADMIN_PASSWORD=" + c.Password}, c.Env...)
	p, err := Start(ctx, c.Dir, "coordinator", env, c.Program, "serve", "--listen", c.Addr, "--redis-url", c.RedisURL, "--shutdown-delay", "0s")
	if err != nil {
		return nil, err
	}
	if err := p.WaitFor(ctx, startTimeout, func(ctx context.Context) error { return OK(ctx, "http://"+c.Addr+"/readyz") }); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// OK returns nil when url answers 200.
func OK(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
