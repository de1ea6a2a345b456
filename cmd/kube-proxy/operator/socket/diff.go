package socket

// Difference is a difference between the table that the proxy wants and the one
// in the kernel.
type Difference struct {
	// Family is IPv4 or IPv6.
	Family string         `json:"family"`
	Kind   DifferenceKind `json:"kind"`
	// Object is the row, chain, set or counter in nft syntax: as it should be,
	// or as it is if it is extra.
	Object string `json:"object"`
	// Found is what a changed object is instead, if that is known.
	Found string `json:"found,omitempty"`
	// ServicePort is the namespace/name:port that has the object, "" for other
	// objects.
	ServicePort string `json:"servicePort,omitempty"`
}

// DifferenceKind is the kind of a difference.
type DifferenceKind string

// Kinds of differences.
const (
	Missing DifferenceKind = "missing" // the kernel does not have the object
	Changed DifferenceKind = "changed" // it has another one
	Extra   DifferenceKind = "extra"   // the proxy does not want it
)

// DiffStep is the result of a step of a comparison.
type DiffStep struct {
	Differences []Difference `json:"differences,omitempty"`
	// Rows is the number of rows that were compared since the comparison began.
	// A row that several service ports have counts for each of them. AllRows is
	// the number of rows of the tables.
	Rows    int `json:"rows"`
	AllRows int `json:"allRows"`
	// Cursor is the position after the step. A comparison can continue there.
	Cursor string `json:"cursor"`
	// Done reports whether this is the last step.
	Done bool `json:"done"`
}
