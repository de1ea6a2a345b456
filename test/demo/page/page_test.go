package page

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// written returns what f writes.
func written(colour bool, f func(*Page)) string {
	var b strings.Builder
	f(New(&b, colour))
	return b.String()
}

func TestPage(t *testing.T) {
	got := written(false, func(p *Page) {
		p.Title("A tour")
		p.Scene("First")
		p.Text("Some %s.", strings.Repeat("word ", 30))
		p.Try("true", "false")
		p.Try("one \\\ntwo")
		p.Scene("Second")
		p.Listing(strings.Repeat("x", 200))
		p.Result(Wrong, "it is %s", strings.Repeat("bad ", 30))
		p.Result(OK, "fine")
		p.Text("The end.")
	})
	want := `A tour


1. First
--------

Some word word word word word word word word word word word word word word word word word word word
word word word word word word word word word word word .

  $ true
  $ false

  $ one \
      two


2. Second
---------

  ` + strings.Repeat("x", 105) + `...

  WRONG: it is bad bad bad bad bad bad bad bad bad bad bad bad bad bad bad bad bad bad bad bad bad
         bad bad bad bad bad bad bad bad bad
  ok: fine

The end.

`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestTable(t *testing.T) {
	table := Table{Columns: []string{"FROM", "IPv4\nweb-1 web-2", "COUNT"}, Right: []int{2}}
	table.Add(OK, "client", "    3     4", "7")
	table.Add(Wrong, "a longer name", "refused")
	table.Add(None, "pod", "", "1234567")
	want := "                 IPv4\n" +
		"  FROM           web-1 web-2    COUNT\n" +
		"  client             3     4        7  ok\n" +
		"  a longer name  refused               WRONG\n" +
		"  pod                         1234567\n\n"
	if got := written(false, func(p *Page) { p.Table(table) }); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestColour(t *testing.T) {
	show := func(p *Page) {
		table := Table{Columns: []string{"FROM"}}
		table.Add(OK, "client")
		p.Title("A tour")
		p.Table(table)
		p.Try("true")
	}
	coloured := written(true, show)
	for _, want := range []string{"\x1b[1mA tour\x1b[0m", "\x1b[32mok\x1b[0m", "\x1b[36m$ true\x1b[0m", "\x1b[2m  FROM\x1b[0m"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("%q is missing in %q", want, coloured)
		}
	}
	if plain := written(false, show); strings.Contains(plain, "\x1b") {
		t.Errorf("colour where none is wanted: %q", plain)
	}
}

func TestWantsColour(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if WantsColour(file) {
		t.Error("colour for what is no terminal")
	}
}

// A page that cannot be written keeps its first error, and writes no more.
func TestErr(t *testing.T) {
	w := &failing{}
	p := New(w, false)
	p.Title("A tour")
	p.Text("more")
	if !errors.Is(p.Err(), errFull) || w.writes != 1 {
		t.Errorf("error %v after %d writes", p.Err(), w.writes)
	}
}

var errFull = errors.New("full")

type failing struct{ writes int }

func (f *failing) Write([]byte) (int, error) {
	f.writes++
	return 0, errFull
}
