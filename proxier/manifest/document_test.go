package manifest

import (
	"fmt"
	"slices"
	"testing"
)

func TestSplitDocuments(t *testing.T) {
	tests := []struct {
		name string
		data string
		want []string // as described by describe
	}{
		{name: "empty file", data: ""},
		{name: "blank lines", data: "\n \n"},
		{name: "comment only", data: "# comment\n"},
		{name: "one document", data: "a: 1\n", want: []string{`1 @0 "a: 1\n"`}},
		{
			name: "no newline at the end of the file",
			data: "a: 1\n---\nb: 2",
			want: []string{`1 @0 "a: 1\n"`, `2 @2 "b: 2"`},
		},
		{name: "leading separator", data: "---\na: 1\n", want: []string{`1 @1 "a: 1\n"`}},
		{
			name: "comment before the first separator",
			data: "# license\n\n---\na: 1\n---\nb: 2\n",
			want: []string{`1 @3 "a: 1\n"`, `2 @5 "b: 2\n"`},
		},
		{
			name: "empty documents",
			data: "a: 1\n---\n---\n# nothing\n---\nb: 2\n---\n",
			want: []string{`1 @0 "a: 1\n"`, `2 @2 ""`, `3 @3 "# nothing\n"`, `4 @5 "b: 2\n"`, `5 @7 ""`},
		},
		{name: "comment after the separator", data: "--- # first\na: 1\n", want: []string{`1 @1 "a: 1\n"`}},
		{
			name: "carriage returns",
			data: "a: 1\r\n---\r\nb: 2\r\n",
			want: []string{`1 @0 "a: 1\r\n"`, `2 @2 "b: 2\r\n"`},
		},
		{
			name: "end marker",
			data: "a: 1\n...\n# between\n---\nb: 2\n",
			want: []string{`1 @0 "a: 1\n"`, `2 @4 "b: 2\n"`},
		},
		{
			name: "content after an end marker",
			data: "a: 1\n...\nb: 2\n",
			want: []string{`1 @0 "a: 1\n"`, `2 @2 "b: 2\n"`},
		},
		{
			name: "content after the separator",
			data: "a: 1\n--- b: 2\n",
			want: []string{`1 @0 "a: 1\n"`, `2: line 2: invalid document separator: --- b: 2`},
		},
		{
			name: "separator in a block scalar",
			data: "a: |\n  ---\n  b\n",
			want: []string{`1 @0 "a: |\n  ---\n  b\n"`},
		},
		{name: "JSON", data: "\n {\"a\": 1}\n", want: []string{`1 @1 JSON "{\"a\": 1}"`}},
		{
			name: "sequence of JSON values",
			data: "{\"a\":1}{\"b\":2}\n{}",
			want: []string{`1 @0 JSON "{\"a\":1}"`, `2 @0 JSON "{\"b\":2}"`, `3 @1 JSON "{}"`},
		},
		{
			name: "JSON, then YAML",
			data: "{\"a\": 1}\n---\nb: 2\n",
			want: []string{`1 @0 JSON "{\"a\": 1}"`, `2 @2 "b: 2\n"`},
		},
		{
			name: "YAML, then JSON",
			data: "b: 2\n---\n{\"a\": 1}\n",
			want: []string{`1 @0 "b: 2\n"`, `2 @2 "{\"a\": 1}\n"`},
		},
		{
			name: "JSON between separators",
			data: "{}\n---\n{}\n---\n{}\n",
			want: []string{`1 @0 JSON "{}"`, `2 @2 "{}\n"`, `3 @4 "{}\n"`},
		},
		{
			name: "flow mapping",
			data: "{a: 1}\n",
			want: []string{
				`1 @0 "{a: 1}\n" or line 1: invalid character 'a' looking for beginning of object key string`,
			},
		},
		{
			name: "invalid JSON after two values",
			data: "{}\n{}\n{\"a\":\n]",
			want: []string{
				`1 @0 JSON "{}"`,
				`2 @1 JSON "{}"`,
				`3: line 4: invalid character ']' looking for beginning of value`,
			},
		},
		{
			name: "truncated JSON",
			data: "{}{}{",
			want: []string{`1 @0 JSON "{}"`, `2 @0 JSON "{}"`, `3: unexpected EOF`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, doc := range splitDocuments([]byte(test.data)) {
				got = append(got, doc.describe())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// describe returns the number, the line and the data of a document, or the
// number and the error.
func (d document) describe() string {
	if d.err != nil {
		return fmt.Sprintf("%d: %v", d.number, d.err)
	}
	text := fmt.Sprintf("%d @%d ", d.number, d.line)
	if d.isJSON {
		text += "JSON "
	}
	text += fmt.Sprintf("%q", d.data)
	if d.jsonErr != nil {
		text += fmt.Sprintf(" or %v", d.jsonErr)
	}
	return text
}
