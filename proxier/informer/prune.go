package informer

import "encoding/binary"

// unread are the numbers of the fields of a protobuf message that are not
// read. For a field of which only parts are not read, it has these parts.
type unread map[uint64]unread

// The fields that package translate does not read, except for the small ones.
// To decode them takes as long as to decode the others, and managedFields has
// no limit. The numbers are in the .proto files of the API.
var (
	unreadMeta = unread{
		2:  nil, // generateName
		13: nil, // ownerReferences
		14: nil, // finalizers
		17: nil, // managedFields
	}
	unreadService = unread{
		1: unreadMeta,
		2: {2: nil}, // spec.selector
	}
	unreadEndpointSlice = unread{
		1: unreadMeta,
		2: { // endpoints
			3: nil, // hostname
			4: nil, // targetRef
			5: nil, // deprecatedTopology
			7: nil, // zone
		},
	}
)

// prune removes these fields from the encoding of a message and returns the
// rest, in the same memory. It leaves all bytes after an invalid field
// unchanged: the decoder reports the error.
func (u unread) prune(message []byte) []byte {
	rest := message[:0]
	for len(message) > 0 {
		header, size := fieldSize(message)
		if size == 0 {
			break
		}
		field := message[:size]
		message = message[size:]
		number, _ := binary.Uvarint(field)
		parts, found := u[number>>3]
		switch {
		case !found || number&7 != wireBytes:
			rest = append(rest, field...)
		case parts != nil:
			content := parts.prune(field[header:])
			setSize(field[:header], len(content))
			rest = append(append(rest, field[:header]...), content...)
		}
	}
	return append(rest, message...)
}

// fieldSize returns the size of the first field of a message, and of its header
// of number and length. The size is 0 for a field that is invalid or of another
// wire type.
func fieldSize(message []byte) (header, size int) {
	key, n := binary.Uvarint(message)
	if n <= 0 {
		return 0, 0
	}
	value, m := binary.Uvarint(message[n:])
	switch {
	case m <= 0:
		return 0, 0
	case key&7 == wireVarint:
		return n, n + m
	case key&7 != wireBytes || value > uint64(len(message)-n-m):
		return 0, 0
	}
	return n + m, n + m + int(value)
}

// setSize replaces the length in a header. It has as many bytes as before,
// which is valid for a smaller number.
func setSize(header []byte, size int) {
	_, n := binary.Uvarint(header)
	length := header[n:]
	for i := range length {
		length[i] = byte(size)&0x7f | 0x80
		size >>= 7
	}
	length[len(length)-1] &= 0x7f
}
