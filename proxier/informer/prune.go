package informer

import "google.golang.org/protobuf/encoding/protowire"

// unread are the numbers of the fields of a protobuf message that are not
// read. For a field of which only parts are not read, it has these parts.
type unread map[protowire.Number]unread

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
	unreadService       = unread{1: unreadMeta}
	unreadEndpointSlice = unread{
		1: unreadMeta,
		2: { // endpoints
			3: nil, // hostname
			4: { // targetRef, of which kind and name are read
				2: nil, // namespace
				4: nil, // uid
				5: nil, // apiVersion
				6: nil, // resourceVersion
				7: nil, // fieldPath
			},
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
		number, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			break
		}
		field := message[:size]
		message = message[size:]
		parts, found := u[number]
		switch {
		case !found || kind != protowire.BytesType:
			rest = append(rest, field...)
		case parts != nil:
			_, _, tag := protowire.ConsumeTag(field)
			content, _ := protowire.ConsumeBytes(field[tag:])
			// The new length takes at most as many bytes: it does not
			// overwrite content.
			rest = protowire.AppendBytes(append(rest, field[:tag]...), parts.prune(content))
		}
	}
	return append(rest, message...)
}
