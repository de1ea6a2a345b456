package operator

import (
	"bytes"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/printable"
)

// terminal is the standard output if it may be a terminal. Its file is nil if
// the output is no file.
type terminal struct{ *os.File }

// size returns the size of the terminal. ok is false if it is none.
func (t terminal) size() (width, height int, ok bool) {
	if t.File == nil {
		return 0, 0, false
	}
	s, err := unix.IoctlGetWinsize(int(t.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(s.Col), int(s.Row), true
}

// Control sequences (ECMA-48), which all terminals know.
const (
	cursorHome = "\x1b[H"
	clearLine  = "\x1b[K" // to its end
	clearBelow = "\x1b[J"
)

// show replaces what the terminal shows.
func (t terminal) show(text []byte) error {
	var b bytes.Buffer
	if _, err := printable.NewWriter(&b).Write(text); err != nil {
		return err
	}
	frame := cursorHome + strings.ReplaceAll(b.String(), "\n", clearLine+"\n") + clearBelow
	_, err := t.WriteString(frame)
	return err
}
