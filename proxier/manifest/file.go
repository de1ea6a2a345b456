package manifest

import (
	"crypto/sha256"

	"k8s.io/apimachinery/pkg/runtime"
)

// file is what is known of a file. It changes as a whole: what is in force is one version of it.
type file struct {
	name string
	// inForce is the last good version. Without problems it is also the version read last.
	inForce parsed
	// good tells whether there was a good version.
	good bool
	// problems tell why the version read last is not in force.
	problems []problem
	// documents are the good ones of the version read last, so that only changed ones are parsed again.
	documents map[digest]parsed
}

// digest names the content of a document.
type digest [sha256.Size]byte

// digest covers all that the objects of a good document depend on.
func (d document) digest() digest {
	if d.isJSON {
		return sha256.Sum256(append([]byte("JSON:"), d.data...))
	}
	return sha256.Sum256(d.data)
}

// next returns the file after it was read.
func (f file) next(serializer runtime.Decoder, read content) file {
	if read.err != nil {
		f.problems = []problem{{place: place{file: f.name, item: noItem}, err: read.err}}
		return f
	}
	return f.parse(serializer, read.data)
}

// parse returns the file with a new content.
func (f file) parse(serializer runtime.Decoder, data []byte) file {
	var content parsed
	documents := make(map[digest]parsed)
	for _, doc := range splitDocuments(data) {
		sum := doc.digest()
		result, known := f.documents[sum]
		if !known || doc.broken != nil {
			result = parseDocument(serializer, doc)
		}
		if len(result.problems) == 0 {
			documents[sum] = result
		}
		content.append(result.at(f.name, doc.number))
	}
	f.documents = documents
	f.problems = content.problems
	if len(content.problems) == 0 {
		f.inForce, f.good = content, true
	}
	return f
}
