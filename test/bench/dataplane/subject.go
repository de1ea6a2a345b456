package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// subject is one instance of a variant: a place whose node has its rules.
type subject struct {
	variant  result.Variant
	instance int
	place    *place
	targets  targets
	fresh    uint32 // clients that connected as new ones so far
}

// prepare makes all instances of all variants. The API server is gone afterwards.
func (o *options) prepare(ctx context.Context, s *stage.Stage) ([]*subject, error) {
	all, err := o.prepareStatic(ctx, s)
	if err != nil {
		return nil, err
	}
	service, slice := newUDPService(o.endpoints)
	if err := s.Create(ctx, service, slice); err != nil {
		return nil, err
	}
	service, slice = newAffinityService(o.affinity)
	if err := s.Create(ctx, service, slice); err != nil {
		return nil, err
	}
	loaded := 0
	for _, services := range o.sizes {
		began := time.Now()
		err := s.Load(ctx, loaded, services, func(service int) []netip.Addr { return stage.Endpoints(service, o.endpoints) })
		if err != nil {
			return nil, err
		}
		loaded = services
		o.say("%d Services of %d endpoints are there after %.1f s", services, o.endpoints, time.Since(began).Seconds())
		for _, proxy := range o.proxies {
			for i := range o.instances {
				one, err := o.newProxied(ctx, s, result.Variant{Rules: proxy, Services: services})
				if err != nil {
					return nil, fmt.Errorf("%s, %d Services: %w", proxy, services, err)
				}
				one.instance = i
				all = append(all, one)
			}
		}
	}
	return all, s.CloseCluster()
}

// prepareStatic makes the variants without a proxy.
func (o *options) prepareStatic(ctx context.Context, s *stage.Stage) (all []*subject, err error) {
	front, back := frontends(o.sizes[0]), endpoints(o.sizes[0], o.endpoints)
	rules := []namedRules{{result.None, ""}, {result.Static, staticRules(front, back)}}
	for _, file := range o.rules {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		rules = append(rules, namedRules{strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), string(text)})
	}
	for i := range o.instances {
		for k, r := range rules {
			node, err := s.Lab.Node1.AddPod(fmt.Sprintf("rules%d-%d", k, i))
			if err != nil {
				return nil, err
			}
			one := &subject{variant: result.Variant{Rules: r.name}, instance: i, targets: front}
			if one.place, err = newPlace(s, node); err != nil {
				return nil, err
			}
			if r.name == result.None {
				one.targets = back
			} else if err := writeRules(ctx, node.Namespace, r.text); err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// namedRules are rules as nft reads them.
type namedRules struct{ name, text string }

// newProxied has a proxy write its table for the Services that there are.
func (o *options) newProxied(ctx context.Context, s *stage.Stage, variant result.Variant) (*subject, error) {
	node, err := s.NewNode(ctx, variant.Rules, o.programs.Path(variant.Rules))
	if err != nil {
		return nil, err
	}
	out := &subject{variant: variant, targets: frontends(variant.Services)}
	if out.place, err = newPlace(s, node.Pod); err != nil {
		return nil, err
	}
	process, err := node.Start(ctx, syscall.SysProcAttr{}, nil)
	if err != nil {
		return nil, err
	}
	want := stage.Expectation{Present: []netip.AddrPort{out.targets.affinity}}
	for i := range variant.Services {
		want.Present = append(want.Present, stage.Frontend(i))
	}
	at, err := node.AwaitProgrammed(process, want)
	if err != nil {
		return nil, err
	}
	o.say("%s: programmed after %.1f s", variant, at.Sub(process.Began).Seconds())
	const rest = time.Second // for what else a proxy does after its first sync
	if err := process.Pause(rest); err != nil {
		return nil, err
	}
	process.Terminate()
	return out, process.Kill()
}
