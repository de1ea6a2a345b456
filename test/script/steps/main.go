// Command steps lists the steps of the scripts of a package, with the comments
// of the functions that implement them: go run ./test/script/steps DIRECTORY.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: steps DIRECTORY")
		os.Exit(2)
	}
	all, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		all[name].print(os.Stdout, name)
	}
}

// step is a step of scripts.
type step struct {
	arguments string
	about     string // empty if nothing describes it
}

// print writes the step with its arguments, and what it does below.
func (s step) print(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\n", strings.TrimSpace(name+" "+s.arguments))
	var printer comment.Printer
	printer.TextWidth, printer.TextPrefix = 100, "    "
	w.Write(printer.Text(new(comment.Parser).Parse(s.about)))
}

// source is the test files of a package.
type source struct {
	files     *token.FileSet
	functions []*ast.FuncDecl
	// comments are the texts of comments by the line that follows them, and by
	// their own line if they are at the end of one.
	above, beside map[token.Position]string
}

// read returns the steps of a package by name: the keys of all maps from
// strings to functions, or to anything.
func read(dir string) (map[string]step, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(paths) == 0 {
		return nil, cmp.Or(err, fmt.Errorf("%s has no tests", dir))
	}
	s := source{files: token.NewFileSet(), above: map[token.Position]string{}, beside: map[token.Position]string{}}
	var files []*ast.File
	for _, path := range paths {
		file, err := parser.ParseFile(s.files, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				s.functions = append(s.functions, f)
			}
		}
		for _, group := range file.Comments {
			s.above[s.line(group.End(), 1)], s.beside[s.line(group.Pos(), 0)] = group.Text(), group.Text()
		}
	}
	all := map[string]step{}
	for _, file := range files {
		receiver := ""
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				receiver = receiverOf(n)
			case *ast.CompositeLit:
				if hasSteps(n) {
					s.addSteps(all, receiver, n)
				}
			}
			return true
		})
	}
	return all, nil
}

// addSteps adds the steps of a map in a method of a type.
func (s *source) addSteps(all map[string]step, receiver string, literal *ast.CompositeLit) {
	for _, entry := range literal.Elts {
		pair := entry.(*ast.KeyValueExpr)
		key, isText := pair.Key.(*ast.BasicLit)
		step := s.step(receiver, pair)
		callable := step.about != ""
		switch value := pair.Value.(type) {
		case *ast.FuncLit, *ast.CallExpr:
			callable = true
		case *ast.SelectorExpr:
			callable = callable || s.function(receiver, value.Sel.Name) != nil
		}
		if isText && callable {
			name, _ := strconv.Unquote(key.Value)
			all[name] = step
		}
	}
}

// receiverOf returns the name of the type that has a method.
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	return fmt.Sprint(of)
}

// function returns the function of a name, the method of a type if there are
// several.
func (s *source) function(receiver, name string) (found *ast.FuncDecl) {
	for _, f := range s.functions {
		if f.Name.Name == name && (found == nil || receiverOf(f) == receiver) {
			found = f
		}
	}
	return found
}

// hasSteps reports whether the keys of a map are names of steps.
func hasSteps(literal *ast.CompositeLit) bool {
	m, ok := literal.Type.(*ast.MapType)
	if !ok || fmt.Sprint(m.Key) != "string" {
		return false
	}
	switch value := m.Value.(type) {
	case *ast.FuncType:
		return true
	case *ast.Ident:
		return value.Name == "any"
	case *ast.SelectorExpr:
		return fmt.Sprint(value.X) == "script" && value.Sel.Name == "Command"
	}
	return false
}

// line returns the line of a position, n lines further down.
func (s *source) line(at token.Pos, n int) token.Position {
	p := s.files.Position(at)
	return token.Position{Filename: p.Filename, Line: p.Line + n}
}

// step returns a step: a function, or what returns one. A comment at its entry
// precedes the comment of the function.
func (s *source) step(receiver string, entry *ast.KeyValueExpr) (result step) {
	value := entry.Value
	if call, ok := value.(*ast.CallExpr); ok && len(call.Args) > 0 {
		value = call.Args[0]
	}
	name := ""
	switch value := value.(type) {
	case *ast.FuncLit:
		if value == entry.Value {
			result.arguments = argumentsOf(value.Type)
		}
	case *ast.SelectorExpr:
		name = value.Sel.Name
	case *ast.Ident:
		name = value.Name
	}
	if f := s.function(receiver, name); f != nil {
		result.arguments = argumentsOf(f.Type)
		result.about = strings.TrimPrefix(f.Doc.Text(), name+" ")
	}
	at := s.line(entry.Pos(), 0)
	result.about = cmp.Or(s.above[at], s.beside[s.line(entry.End(), 0)], result.about)
	return result
}

// argumentsOf returns the parameters of a function that are words of a script:
// NAME CLIENTS….
func argumentsOf(f *ast.FuncType) string {
	var names []string
	for _, field := range f.Params.List {
		kind, more := field.Type, ""
		switch many := kind.(type) {
		case *ast.Ellipsis:
			kind, more = many.Elt, "…"
		case *ast.ArrayType:
			kind, more = many.Elt, "…"
		}
		_, basic := kind.(*ast.Ident)
		duration, ok := kind.(*ast.SelectorExpr)
		if !basic && (!ok || duration.Sel.Name != "Duration") {
			continue
		}
		for _, name := range field.Names {
			names = append(names, strings.ToUpper(name.Name)+more)
		}
	}
	return strings.Join(names, " ")
}
