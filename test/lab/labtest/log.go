package labtest

import (
	"bytes"
	"sync"
)

// Log is the output of a program and of its later processes.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	begin int // of the current process
}

// Write appends output.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Restart begins the output of another process.
func (l *Log) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin = l.text.Len()
}

// Current returns the output of the current process.
func (l *Log) Current() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text.Bytes()[l.begin:])
}

// String returns the output of all processes.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
