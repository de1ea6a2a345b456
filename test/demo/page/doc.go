// Package page writes what the tour shows: headings, paragraphs, commands, tables, all within Width columns of plain text,
// with a little colour where that is wanted. It knows nothing of what it shows.
package page
