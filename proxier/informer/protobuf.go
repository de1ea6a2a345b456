package informer

import (
	"bufio"
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
	outer := message{in: in, left: math.MaxInt64, open: true}
	err = outer.each(func(number uint64, size int64) error {
		switch number {
		case unknownTypeMeta:
			return outer.read(size, func(b []byte) error { return checkKind(b, kind) })
		case unknownRaw:
			complete = true
			list := message{in: in, left: size}
			return list.each(func(number uint64, size int64) error {
				switch number {
				case listMeta:
					return list.read(size, meta.Unmarshal)
				case listItems:
					return list.read(size, item)
				}
				return list.skip(size)
			})
		}
		return outer.skip(size)
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

// message reads the fields of a protobuf message from a stream.
type message struct {
	in     *bufio.Reader
	left   int64 // remaining bytes of the message
	open   bool  // the message ends with the stream
	buffer []byte
}

// each calls f with the number and the size of each field that has a size. f
// must read or skip the field.
func (m *message) each(f func(number uint64, size int64) error) error {
	for m.left > 0 {
		key, err := binary.ReadUvarint(m)
		if m.open && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unexpected(err)
		}
		value, err := binary.ReadUvarint(m)
		if err != nil {
			return unexpected(err)
		}
		switch {
		case key&7 == uint64(protowire.VarintType):
			continue
		case key&7 != uint64(protowire.BytesType):
			return fmt.Errorf("protobuf: unsupported wire type %d", key&7)
		case value > uint64(m.left):
			return fmt.Errorf("protobuf: field of %d bytes exceeds the remaining %d of its message", value, m.left)
		}
		if err := f(key>>3, int64(value)); err != nil {
			return err
		}
	}
	return nil
}

// ReadByte implements io.ByteReader.
func (m *message) ReadByte() (byte, error) {
	if m.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	m.left--
	return m.in.ReadByte()
}

// read calls f with the next size bytes, which are valid until f returns.
func (m *message) read(size int64, f func([]byte) error) error {
	if size > maxObject {
		return fmt.Errorf("protobuf: object of %d bytes exceeds the limit of %d", size, maxObject)
	}
	if int64(cap(m.buffer)) < size {
		m.buffer = make([]byte, size)
	}
	m.buffer = m.buffer[:size]
	if _, err := io.ReadFull(m.in, m.buffer); err != nil {
		return unexpected(err)
	}
	m.left -= size
	return f(m.buffer)
}

func (m *message) skip(size int64) error {
	n, err := io.CopyN(io.Discard, m.in, size)
	m.left -= n
	return unexpected(err)
}

// unexpected returns io.ErrUnexpectedEOF for io.EOF within a message.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
