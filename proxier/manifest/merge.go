package manifest

import (
	"fmt"
	"maps"
	"slices"
)

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
