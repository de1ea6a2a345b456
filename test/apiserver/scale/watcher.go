package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// watcher watches the objects in the way of a proxy, and does nothing with them: a proxy cannot know of a change before it does.
type watcher struct {
	watches []watch.Interface
	done    sync.WaitGroup

	mu       sync.Mutex
	expected map[string]chan time.Time // by name; guarded by mu
}

// watchFrom begins in a namespace. Only what changes from now on is told.
func (w *world) watchFrom(ctx context.Context, from *lab.Namespace) (*watcher, error) {
	client, err := w.Connect(from)
	if err != nil {
		return nil, err
	}
	watcher := &watcher{expected: map[string]chan time.Time{}}
	services, slices := client.CoreV1().Services(stage.NamespaceName), client.DiscoveryV1().EndpointSlices(stage.NamespaceName)
	now, err := services.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	options := metav1.ListOptions{ResourceVersion: now.ResourceVersion}
	for _, begin := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){services.Watch, slices.Watch} {
		one, err := begin(ctx, options)
		if err != nil {
			watcher.close()
			return nil, fmt.Errorf("watch: %w", err)
		}
		watcher.watches = append(watcher.watches, one)
		watcher.done.Go(func() { watcher.run(one) })
	}
	return watcher, nil
}

// expect waits for the next event of an object of that name. The channel gets nothing if none comes.
func (w *watcher) expect(name string) <-chan time.Time {
	at := make(chan time.Time, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected[name] = at
	return at
}

func (w *watcher) run(one watch.Interface) {
	for event := range one.ResultChan() {
		now := time.Now()
		object, err := meta.Accessor(event.Object)
		if err != nil {
			continue // the end of the watch: nothing comes any more
		}
		w.mu.Lock()
		if at := w.expected[object.GetName()]; at != nil {
			at <- now
			delete(w.expected, object.GetName())
		}
		w.mu.Unlock()
	}
}

func (w *watcher) close() {
	for _, one := range w.watches {
		one.Stop()
	}
	w.done.Wait()
}
