package manifest

import "k8s.io/klog/v2"

// news is what a read brought that is worth a line in the log, and was not said before.
type news struct {
	file       string
	problems   []problem
	keeps      bool // in spite of the problems, an earlier version of the file is in force
	good       bool // there were problems, now there are none
	notices    []notice
	duplicates []problem
}

// newsSince compares the file with what it was at the read before.
func (f file) newsSince(before file) news {
	return news{
		file:     f.name,
		problems: unknownProblems(f.problems, before.problems),
		keeps:    f.good,
		good:     len(before.problems) > 0 && len(f.problems) == 0,
		notices:  unknownNotices(f.inForce.notices, before.inForce.notices),
	}
}

// unknownProblems returns the problems that are not among those known.
func unknownProblems(problems, known []problem) []problem {
	texts := make(map[string]struct{}, len(known))
	for _, p := range known {
		texts[p.Error()] = struct{}{}
	}
	var unknown []problem
	for _, p := range problems {
		if _, found := texts[p.Error()]; !found {
			unknown = append(unknown, p)
		}
	}
	return unknown
}

// unknownNotices returns the notices that are not among those known. Where in the file they belong does not
// matter: it changes with what stands before.
func unknownNotices(notices, known []notice) []notice {
	type matter struct{ subject, text string }
	matters := make(map[matter]struct{}, len(known))
	for _, n := range known {
		matters[matter{n.subject, n.text}] = struct{}{}
	}
	var unknown []notice
	for _, n := range notices {
		if _, found := matters[matter{n.subject, n.text}]; !found {
			unknown = append(unknown, n)
		}
	}
	return unknown
}

// log writes the news, one line each.
func (n news) log(logger klog.Logger) {
	message := "Cannot use manifest"
	if n.keeps {
		message = "Cannot use manifest, its last good version stays in force"
	}
	for _, p := range n.problems {
		logger.Error(p, message)
	}
	if n.good {
		logger.Info("Manifest is good again", "file", n.file)
	}
	for _, n := range n.notices {
		logger.Info(n.text, "object", n.subject, "file", n.file, "document", n.document)
	}
	for _, d := range n.duplicates {
		logger.Error(d, "Object is defined more than once")
	}
}
