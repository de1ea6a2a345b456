package informer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// An answer of the API server in protobuf is, after protobufMagic, a runtime.Unknown: a message with the type of the object and its encoding.
// That of a list is a message with the list's metadata and the objects, one field each.
const (
	protobufMagic = "k8s\x00"

	unknownTypeMeta = 1
	unknownRaw      = 2
	listMeta        = 1
	listItems       = 2
)

// maxObject is how large the encoding of one object can be, in bytes. etcd takes no more than a few of these.
const maxObject = 256 << 20

// decodeList reads a list of that kind and calls item with the encoding of each of its objects, which is overwritten afterwards.
func decodeList(in *bufio.Reader, kind string, item func([]byte) error) (about metav1.ListMeta, err error) {
	if _, err := in.Discard(len(protobufMagic)); err != nil {
		return about, err
	}
	complete := false
	outer := message{in: in, left: math.MaxInt64, open: true}
	err = outer.each(func(number uint64, size int64) error {
		switch number {
		case unknownTypeMeta:
			return outer.read(size, func(b []byte) error { return wantKind(b, kind) })
		case unknownRaw:
			complete = true
			list := message{in: in, left: size}
			return list.each(func(number uint64, size int64) error {
				switch number {
				case listMeta:
					return list.read(size, about.Unmarshal)
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
	return about, err
}

func wantKind(typeMeta []byte, kind string) error {
	var is runtime.TypeMeta
	if err := is.Unmarshal(typeMeta); err != nil {
		return err
	}
	if is.Kind != kind {
		return fmt.Errorf("the API server answered with a %s", is.Kind)
	}
	return nil
}

// message reads the fields of a protobuf message from a stream.
type message struct {
	in     *bufio.Reader
	left   int64 // bytes of the message
	open   bool  // says that it ends with the stream
	buffer []byte
}

// The wire types of protobuf that API objects have.
const (
	wireVarint = 0
	wireBytes  = 2
)

// each calls f with the number and the size of each field that has a size. f reads or skips it.
func (m *message) each(f func(number uint64, size int64) error) error {
	for m.left > 0 {
		if _, err := m.in.Peek(1); m.open && errors.Is(err, io.EOF) {
			return nil
		}
		key, err := m.varint()
		if err != nil {
			return err
		}
		value, err := m.varint()
		if err != nil {
			return err
		}
		switch {
		case key&7 == wireVarint:
			continue
		case key&7 != wireBytes:
			return fmt.Errorf("protobuf: wire type %d", key&7)
		case value > uint64(m.left):
			return fmt.Errorf("protobuf: a field of %d bytes in a message that has %d left", value, m.left)
		}
		if err := f(key>>3, int64(value)); err != nil {
			return err
		}
	}
	return nil
}

func (m *message) varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64 && m.left > 0; shift += 7 {
		b, err := m.in.ReadByte()
		if err != nil {
			return 0, unexpected(err)
		}
		m.left--
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("protobuf: a number that does not end")
}

// read calls f with the next bytes.
func (m *message) read(size int64, f func([]byte) error) error {
	if size > maxObject {
		return fmt.Errorf("protobuf: an object of %d bytes", size)
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

// unexpected says of an end within a message that it is one.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
