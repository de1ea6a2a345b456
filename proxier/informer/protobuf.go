package informer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A protobuf response of the API server is protobufMagic and the message
// runtime.Unknown, which has the type of the object and its encoding. The
// encoding of a list is a message with the list's metadata and a field for
// each object.
const (
	protobufMagic = "k8s\x00"

	// Field numbers of runtime.Unknown.
	unknownTypeMeta = 1
	unknownRaw      = 2
	// Field numbers of lists.
	listMeta  = 1
	listItems = 2
)

// maxObject limits the encoding of an object, in bytes. The limit of etcd is
// far below.
const maxObject = 256 << 20

// decodeList decodes a list of kind. It calls item with the encoding of each
// object. The encoding is valid until item returns, which may modify it.
func decodeList(in *bufio.Reader, kind string, item func([]byte) error) (meta metav1.ListMeta, err error) {
	if _, err := in.Discard(len(protobufMagic)); err != nil {
		return meta, err
	}
	complete := false
	var buffer bytes.Buffer
	err = eachField(in, func(number uint64, content *io.LimitedReader) error {
		switch number {
		case unknownTypeMeta:
			return decode(content, &buffer, func(b []byte) error { return checkKind(b, kind) })
		case unknownRaw:
			complete = true
			list := bufio.NewReaderSize(content, in.Size())
			return eachField(list, func(number uint64, content *io.LimitedReader) error {
				switch number {
				case listMeta:
					return decode(content, &buffer, meta.Unmarshal)
				case listItems:
					return decode(content, &buffer, item)
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && !complete {
		err = io.ErrUnexpectedEOF
	}
	return meta, err
}

func checkKind(typeMeta []byte, want string) error {
	var got runtime.TypeMeta
	if err := got.Unmarshal(typeMeta); err != nil {
		return err
	}
	if got.Kind != want {
		return fmt.Errorf("response is a %s", got.Kind)
	}
	return nil
}

// eachField calls f with the number and the content of each field of a protobuf
// message that has a size. f may leave a part of the content. The message ends
// with in.
func eachField(in *bufio.Reader, f func(number uint64, content *io.LimitedReader) error) error {
	content := &io.LimitedReader{R: in}
	for {
		key, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		size, err := binary.ReadUvarint(in)
		switch kind := protowire.Type(key & 7); {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case kind == protowire.VarintType:
			continue
		case kind != protowire.BytesType || size > math.MaxInt64:
			return fmt.Errorf("protobuf: unsupported field of wire type %d with %d bytes", kind, size)
		}
		content.N = int64(size)
		if err := f(key>>3, content); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return err
		}
		if content.N > 0 {
			return io.ErrUnexpectedEOF
		}
	}
}

// decode calls f with the content of a field, which is in buffer until f
// returns.
func decode(content *io.LimitedReader, buffer *bytes.Buffer, f func([]byte) error) error {
	if content.N > maxObject {
		return fmt.Errorf("protobuf: object of %d bytes exceeds the limit of %d", content.N, maxObject)
	}
	buffer.Reset()
	if _, err := buffer.ReadFrom(content); err != nil {
		return err
	}
	if content.N > 0 {
		return io.ErrUnexpectedEOF
	}
	return f(buffer.Bytes())
}
