package conntrack

import "path/filepath"

// Usage is how full the table of connection tracking is. When it is full, the
// kernel drops packets of new connections.
type Usage struct {
	Entries int `json:"entries"`
	Max     int `json:"max"`
}

// ReadUsage reads the usage in the network namespace of the calling thread from
// the kernel's files below root, which is "/" except in tests.
func ReadUsage(root string) (u Usage, err error) {
	if u.Entries, err = readInt(filepath.Join(root, sysctlDir, "nf_conntrack_count")); err == nil {
		u.Max, err = readInt(filepath.Join(root, sysctlDir, "nf_conntrack_max"))
	}
	return u, err
}

// Full returns the fill of the table, from 0 to 1.
func (u Usage) Full() float64 {
	if u.Max == 0 { // no limit
		return 0
	}
	return float64(u.Entries) / float64(u.Max)
}
