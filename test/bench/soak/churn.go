package main

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/random"
)

// churn makes changes of Services, EndpointSlices, a Node and a ServiceCIDR at
// a rate. The sequence follows from the seed.
type churn struct {
	world *world
	g     *random.Generator
	pace  *rate.Limiter
	made  atomic.Int64

	mu       sync.Mutex // held during a step
	state    *random.State
	extra    bool // reports whether the third ServiceCIDR exists
	graceful int
}

// perSecond limits a rate. Turns of the last tenth of a second are made up for.
func perSecond(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n), 1+n/10) }

// create creates the first Services.
func (c *churn) create(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = c.g.Initial()
	return c.do(ctx, c.world.api.Changes(c.g, nil, c.state)...)
}

// run makes changes until ctx ends.
func (c *churn) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.step(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// step makes a random change, and sometimes others.
func (c *churn) step(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.state.Clone()
	c.g.Change(next)
	changes := c.world.api.Changes(c.g, c.state, next)
	c.state = next
	if c.g.Chance(20) {
		changes = append(changes, c.replaceEndpoint())
	}
	if c.g.Chance(2) {
		changes = append(changes, c.toggleServiceCIDR)
	}
	return c.do(ctx, changes...)
}

// replaceEndpoint returns the next step of a graceful replacement.
func (c *churn) replaceEndpoint() objects.Change {
	for {
		c.graceful = (c.graceful + 1) % len(c.world.steady)
		if s := c.world.steady[c.graceful]; s.graceful {
			s.advance(c.g.Rand)
			return func(ctx context.Context) error { return c.world.putEndpoints(ctx, s) }
		}
	}
}

// toggleServiceCIDR creates a ServiceCIDR that no Service uses, or deletes it.
func (c *churn) toggleServiceCIDR(ctx context.Context) (err error) {
	third := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "third"}}
	third.Spec.CIDRs = []string{"10.98.0.0/24", "fd00:98::/112"}
	api := c.world.Client.NetworkingV1().ServiceCIDRs()
	if c.extra {
		err = api.Delete(ctx, third.Name, metav1.DeleteOptions{})
	} else {
		_, err = api.Create(ctx, third, metav1.CreateOptions{})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		c.extra, err = !c.extra, nil
	}
	return err
}

// do makes requests at the rate, and repeats each one until it succeeds: the
// API server is stopped at times.
func (c *churn) do(ctx context.Context, changes ...objects.Change) error {
	const limit, pause = 5 * patience, 100 * time.Millisecond
	for _, change := range changes {
		if err := c.pace.Wait(ctx); err != nil {
			return err
		}
		var last error
		err := wait.PollUntilContextTimeout(ctx, pause, limit, true, func(ctx context.Context) (bool, error) {
			limited, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			if last = change(limited); last != nil {
				c.world.releaseAddress(ctx, last)
			}
			return last == nil, nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
		c.made.Add(1)
	}
	return nil
}

// leakedAddress matches the error of a request to create a Service whose
// address an API server allocated before it was stopped, without creating the
// Service.
var leakedAddress = regexp.MustCompile(`failed to allocate IP (\S+): provided IP is already allocated`)

// releaseAddress releases the address that an error names. The API server does
// this only every minute, one family after the other, and a repeated request
// for two families allocates the first again meanwhile.
func (w *world) releaseAddress(ctx context.Context, err error) {
	if leaked := leakedAddress.FindStringSubmatch(err.Error()); leaked != nil {
		// If this fails, the next attempt to create the Service fails, too.
		_ = w.Client.NetworkingV1().IPAddresses().Delete(ctx, leaked[1], metav1.DeleteOptions{})
	}
}

// pauseEmpty calls f while nothing changes, and again after all random Services
// were deleted. Then it creates them again.
func (c *churn) pauseEmpty(ctx context.Context, full, empty func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := full(); err != nil {
		return err
	}
	none := &random.State{Node: c.state.Node}
	order := random.New(0, 0, random.Config{}) // changes do not depend on when this is
	if err := c.do(ctx, c.world.api.Changes(order, c.state, none)...); err != nil {
		return err
	}
	if err := empty(); err != nil {
		return err
	}
	return c.do(ctx, c.world.api.Changes(order, none, c.state)...)
}
