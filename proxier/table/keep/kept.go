package keep

import (
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// Kept is what a Keeper remembers of an owner.
type Kept struct {
	have Content // as of the last commit
	// staged are the rows in the kernel, if they are not those of have: a large
	// change is under way (see stages.go).
	staged []nft.Row
	// unfinished is the content before or after that change, of which rows are
	// in the kernel, too.
	unfinished Content
	version    int           // number of commits
	pending    bool          // changed since it was written
	queued     bool          // is in Account.waiting
	taken      bool          // is in the part that is being written
	trouble    *trouble      // nil for an owner without failures
	touched    time.Time     // when it began to wait
	took       time.Duration // CPU time of its last part
}

// trouble is the fate of an owner after failures, and why it cannot be written
// as it is wanted.
type trouble struct {
	fate
	why   string
	after time.Time // before which it is not tried again, unless it changes
}

// Have returns the content that the kernel has, as of the last commit.
func (k *Kept) Have() Content { return k.have }

// Unfinished returns another content of which the kernel has rows while a large
// change is under way, nil for none.
func (k *Kept) Unfinished() Content { return k.unfinished }

// IsEmpty reports whether the kernel has nothing of the owner.
func (k *Kept) IsEmpty() bool { return k.have == nil && len(k.staged) == 0 }

// rows appends the rows in the kernel.
func (k *Kept) rows(to []nft.Row) []nft.Row {
	if k.staged != nil {
		return append(to, k.staged...)
	}
	return rowsOf(to, k.have)
}

// Pending reports whether the owner changed since it was written.
func (k *Kept) Pending() bool { return k.pending }

// Less reports whether the next transaction does not write the owner as it is
// wanted, and why.
func (k *Kept) Less() (why string, less bool) {
	if k.fate().instead == theWanted {
		return "", false
	}
	return k.trouble.why, true
}

// Refused reports whether the owner is not tried again until it changes, or
// until the next Resync, and why.
func (k *Kept) Refused() (why string, refused bool) {
	if !k.fate().refused {
		return "", false
	}
	return k.trouble.why, true
}

// StaysSame reports whether the next transaction leaves the owner as it is in
// the kernel, because a change of it failed.
func (k *Kept) StaysSame() bool { return k.fate().instead == theSame }

// HeldBack reports whether the Keeper tries the owner again without a change.
func (k *Kept) HeldBack() bool { return k.trouble != nil && k.trouble.waits() }

func (k *Kept) fate() fate {
	if k.trouble == nil {
		return fate{}
	}
	return k.trouble.fate
}

// Next returns the content that the next transaction gives the owner. content
// is Source.Content, without the owner. The error is the reason why it cannot
// be written as it is wanted.
func (k *Kept) Next(content func(have Content, less bool) (Content, error)) (Content, error) {
	switch f := k.fate(); {
	case f.instead == theSame:
		return k.have, nil
	case f.instead == theNothing, f.instead == theLast && k.have == nil && !f.refused:
		return nil, nil
	case f.instead == theLast:
		next, _ := content(k.have, true)
		return next, nil
	}
	return content(k.have, false)
}
