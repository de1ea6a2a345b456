package nft

import "golang.org/x/sys/unix"

// Set describes a set. With Data or Verdicts it is a map.
type Set struct {
	Name string
	// Key describes the fields of a key.
	Key Fields
	// Data describes the fields of the data of a map. It is zero for sets and
	// verdict maps.
	Data Fields
	// Verdicts makes the set a verdict map.
	Verdicts bool
	// Dynamic allows rules to add rows (Update), which can expire.
	Dynamic bool
	// Counts makes each row count the packets for which a rule finds it (Linux
	// 5.7).
	Counts bool
	// Size is the maximum number of rows. 0 means no limit, or 65535 if
	// Dynamic is set.
	Size uint32
	// Comment is stored with the set, cut to 127 bytes.
	Comment string

	ranges bool // see FindSet
}

func (s *Set) isMap() bool { return s.Verdicts || s.Data.Len() > 0 }

func (s *Set) flags() uint32 {
	var f uint32
	if s.isMap() {
		f |= unix.NFT_SET_MAP
	}
	if s.Dynamic {
		f |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	return f
}
