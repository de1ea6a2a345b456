package informer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// errListFirst makes a reflector list and then watch, instead of starting a
// watch that sends all objects first. For the API server, an object in a list
// is several times cheaper than one in a watch.
var errListFirst = errors.New("watches begin after a list")

// newListWatcher returns the lister and watcher of a collection. The lists
// hold translations.
func newListWatcher[N comparable, V any, O object](k kind[N, V, O], from collection) cache.ListerWatcher {
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		body, err := from.request(o).UseProtobufAsDefault().Stream(ctx)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		return readList(k, from.decoder, body)
	}
	return &cache.ListWatch{
		ListWithContextFunc: list,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errListFirst
			}
			return from.watch(ctx, o)
		},
	}
}

// readList reads a response of the API server. It translates each object when
// it arrives, in the memory of the one before, so that neither the response nor
// the objects are in memory as a whole. A response that is not in protobuf is
// read as a whole, by the decoder.
func readList[N comparable, V any, O object](
	k kind[N, V, O], decoder runtime.Decoder, body io.Reader,
) (runtime.Object, error) {
	const buffer = 64 << 10
	in := bufio.NewReaderSize(body, buffer)
	if start, err := in.Peek(len(protobufMagic)); err != nil || string(start) != protobufMagic {
		return readWholeList(k, decoder, in)
	}
	list := new(internalversion.List)
	o := k.new()
	meta, err := decodeList(in, k.name+"List", func(protobuf []byte) error {
		k.reset(o)
		if err := o.Unmarshal(k.unread.prune(protobuf)); err != nil {
			return err
		}
		list.Items = append(list.Items, k.translated(o))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list of %s objects: %w", k.name, err)
	}
	list.ListMeta = meta
	return list, nil
}

func readWholeList[N comparable, V any, O object](
	k kind[N, V, O], decoder runtime.Decoder, in io.Reader,
) (runtime.Object, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("list of %s objects: %w", k.name, err)
	}
	whole, err := runtime.Decode(decoder, text)
	if err != nil {
		return nil, fmt.Errorf("list of %s objects: %w", k.name, err)
	}
	return translateList(k, whole)
}

// translateList translates the objects of a list.
func translateList[N comparable, V any, O object](k kind[N, V, O], whole runtime.Object) (runtime.Object, error) {
	listMeta, err := meta.ListAccessor(whole)
	if err != nil {
		return nil, fmt.Errorf("list of %s objects: %w", k.name, err)
	}
	list := new(internalversion.List)
	list.ResourceVersion, list.Continue = listMeta.GetResourceVersion(), listMeta.GetContinue()
	err = meta.EachListItem(whole, func(o runtime.Object) error {
		one, ok := o.(O)
		if !ok {
			return fmt.Errorf("list of %s objects: unexpected %T", k.name, o)
		}
		list.Items = append(list.Items, k.translated(one))
		return nil
	})
	return list, err
}
