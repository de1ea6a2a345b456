package informer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/metrics"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
)

// errListFirst makes a reflector list and then watch, instead of starting a
// watch that sends all objects first. For the API server, an object in a list
// is several times cheaper than one in a watch.
var errListFirst = errors.New("watches begin after a list")

// listWatcher returns a lister and watcher of the objects. The lists hold
// translations.
func (k kind[N, V, O]) listWatcher(client *apiclient.Client) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			request, begin := k.request(client, o).UseProtobufAsDefault(), time.Now()
			defer func() { // client-go does not observe streams
				metrics.RequestLatency.Observe(ctx, http.MethodGet, *request.URL(), time.Since(begin))
			}()
			body, err := request.Stream(ctx)
			if err != nil {
				return nil, err
			}
			defer body.Close()
			return k.readList(client.Decoder, body)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, errListFirst
			}
			o.Watch = true
			return k.request(client, o).Watch(ctx)
		},
	}
}

// readList reads a response of the API server. It translates each object when
// it arrives, in the memory of the one before, so that neither the response nor
// the objects are in memory as a whole. A response that is not in protobuf is
// read as a whole, by the decoder.
func (k kind[N, V, O]) readList(decoder runtime.Decoder, body io.Reader) (list runtime.Object, err error) {
	const buffer = 64 << 10
	in := bufio.NewReaderSize(body, buffer)
	if start, peekErr := in.Peek(len(protobufMagic)); peekErr == nil && string(start) == protobufMagic {
		list, err = k.readProtobuf(in)
	} else {
		list, err = k.readWhole(decoder, in)
	}
	if err != nil {
		return nil, fmt.Errorf("list of %s objects: %w", k.name, err)
	}
	return list, nil
}

func (k kind[N, V, O]) readProtobuf(in *bufio.Reader) (_ runtime.Object, err error) {
	list, o := new(internalversion.List), k.new()
	list.ListMeta, err = decodeList(in, k.name+"List", func(protobuf []byte) error {
		k.reset(o)
		if err := o.Unmarshal(k.unread.prune(protobuf)); err != nil {
			return err
		}
		list.Items = append(list.Items, k.translated(o))
		return nil
	})
	return list, err
}

func (k kind[N, V, O]) readWhole(decoder runtime.Decoder, in io.Reader) (runtime.Object, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	whole, err := runtime.Decode(decoder, text)
	if err != nil {
		return nil, err
	}
	return k.translateList(whole)
}

// translateList translates the objects of a list.
func (k kind[N, V, O]) translateList(whole runtime.Object) (runtime.Object, error) {
	listMeta, err := meta.ListAccessor(whole)
	if err != nil {
		return nil, err
	}
	list := new(internalversion.List)
	list.ResourceVersion, list.Continue = listMeta.GetResourceVersion(), listMeta.GetContinue()
	err = meta.EachListItem(whole, func(o runtime.Object) error {
		one, ok := o.(O)
		if !ok {
			return fmt.Errorf("unexpected %T", o)
		}
		list.Items = append(list.Items, k.translated(one))
		return nil
	})
	return list, err
}
