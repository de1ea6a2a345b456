// Package style checks rules for the source that no linter checks: which
// packages import which, the width of lines, and paragraphs of Markdown. Its
// tests are part of `make lint`.
package style
