package manifest

import (
	"fmt"
	"maps"
	"slices"
)

// merge returns the objects of all files, and a problem for each definition that is not in force because of
// another one. inForce are the objects of the last merge.
//
// Of several definitions that in the file that is in force stays; otherwise the first by file name counts.
// Within a file the first counts.
func merge(files map[string]file, inForce map[objectKey]object) (map[objectKey]object, []problem) {
	merged := make(map[objectKey]object, len(inForce))
	var duplicates []object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, candidate := range files[name].inForce.objects {
			rival, found := merged[candidate.key]
			switch {
			case !found:
				merged[candidate.key] = candidate
			case rival.file != candidate.file && inForce[candidate.key].file == candidate.file:
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
			err:     fmt.Errorf("is defined already in %s, which stays in force", merged[duplicate.key].place),
		})
	}
	return merged, problems
}
