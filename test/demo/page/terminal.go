package page

import (
	"os"

	"golang.org/x/sys/unix"
)

// WantsColour tells whether a file is a terminal whose user has nothing against colours (https://no-color.org).
func WantsColour(file *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
