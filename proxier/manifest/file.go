package manifest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// file is the state of a manifest file. One version of it is active as a
// whole.
type file struct {
	name string
	// active is the last valid version. Without problems it is the last
	// version.
	active parsed
	// valid reports whether any version was valid.
	valid bool
	// problems are the reasons why the last version is not active.
	problems []problem
	// documents are the valid documents of the last version. They are reused
	// if they did not change.
	documents map[digest]parsed
	// sum is the digest of the last version, zero if it could not be read.
	sum digest
}

// digest identifies the content of a file or a document.
type digest [sha256.Size]byte

// digest returns a hash of everything that determines the objects of a valid
// document.
func (d document) digest() digest {
	if d.isJSON {
		return sha256.Sum256(append([]byte("JSON:"), d.data...))
	}
	return sha256.Sum256(d.data)
}

// next returns the state after a read at a time.
func (f file) next(decoder runtime.Decoder, read content, now time.Time) file {
	before := f.problems
	if read.err != nil {
		f.problems, f.sum = []problem{{place: place{file: f.name, item: noItem}, err: read.err}}, digest{}
	} else {
		f = f.parse(decoder, read.data)
	}
	setSince(f.problems, before, now)
	return f
}

// parse returns the state after a read of data.
func (f file) parse(decoder runtime.Decoder, data []byte) file {
	sum := digest(sha256.Sum256(data))
	if sum == f.sum {
		return f
	}
	f.sum = sum
	var version parsed
	documents := make(map[digest]parsed)
	for _, doc := range splitDocuments(data) {
		sum := doc.digest()
		result, known := f.documents[sum]
		if !known || doc.err != nil {
			result = parseDocument(decoder, doc)
		}
		if len(result.problems) == 0 {
			documents[sum] = result
		}
		version.append(result, f.name, doc)
		if len(version.problems) >= maxProblems {
			version.problems = append(version.problems, problem{
				place: place{file: f.name, item: noItem}, err: errProblems,
			})
			break
		}
	}
	f.documents = documents
	f.problems = version.problems
	if len(version.problems) == 0 {
		f.active, f.valid = version, true
	}
	return f
}

// merge returns the active objects of all files, and a problem for each
// definition of an object that has another active definition. active is the
// result of the previous merge.
//
// If an object is defined more than once, the definition in the file that had
// the active definition takes precedence, then the first file by name. Within
// a file the first definition takes precedence.
func merge(files map[string]file, active map[objectKey]object) (map[objectKey]object, []problem) {
	merged := make(map[objectKey]object, len(active))
	var duplicates []object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, candidate := range files[name].active.objects {
			rival, found := merged[candidate.key]
			switch {
			case !found:
				merged[candidate.key] = candidate
			case rival.file != candidate.file && active[candidate.key].file == candidate.file:
				merged[candidate.key] = candidate
				duplicates = append(duplicates, rival)
			default:
				duplicates = append(duplicates, candidate)
			}
		}
	}
	var problems []problem
	for _, duplicate := range duplicates {
		problems = append(problems, problem{
			place:   duplicate.place,
			subject: duplicate.key.String(),
			err:     fmt.Errorf("already defined in %s, which stays active", merged[duplicate.key].place),
		})
	}
	return merged, problems
}
