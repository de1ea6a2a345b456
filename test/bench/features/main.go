// Features measures what each feature of Services costs at two sizes, one four
// times the other, to find costs that grow faster than the number of objects.
//
// It starts one child process for each feature and size, in a network namespace
// of its own. The child drives package proxier by its public API, and prints
// each measured value as a line of JSON. The parent kills a child that takes
// too long, and writes a table and a JSON file.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// options is the command line.
type options struct {
	features []*feature
	scale    float64
	tries    int
	budget   time.Duration // for one sync
	publish  string        // folder, "" for none
	command  string        // as it was given

	// A child measures one feature at one size.
	child string
	size  int
}

func main() {
	o, err := parseOptions(os.Args[1:])
	switch {
	case err != nil:
	case o.child != "":
		err = o.measure(o.features[0], os.Stdout)
	default:
		err = o.run(os.Stdout)
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "features:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string) (*options, error) {
	o := &options{command: strings.Join(append([]string{"features"}, args...), " ")}
	set := pflag.NewFlagSet("features", pflag.ContinueOnError)
	set.SortFlags = false
	names := set.StringSlice("features", featureNames(), "Features to measure.")
	set.Float64Var(&o.scale, "scale", 1, "Factor for the sizes.")
	set.IntVar(&o.tries, "tries", 10, "Number of times that each change is made; the table shows medians.")
	set.DurationVar(&o.budget, "budget", 2*time.Minute, "Time after which a sync is given up, or changes end.")
	set.StringVar(&o.publish, "publish", "", "`FOLDER` to write features.txt and features.json to.")
	set.StringVar(&o.child, childFlag, "", "Measure this feature in this process and print lines of JSON.")
	set.IntVar(&o.size, "size", 0, "The number of objects for --"+childFlag+".")
	if err := errors.Join(set.MarkHidden(childFlag), set.MarkHidden("size"), set.Parse(args)); err != nil {
		return nil, err
	}
	if o.child != "" {
		*names = []string{o.child}
	}
	for _, name := range *names {
		i := slices.Index(featureNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("unknown feature %q", name)
		}
		o.features = append(o.features, features()[i])
	}
	if set.NArg() > 0 || o.scale <= 0 || o.tries < 1 || o.budget <= 0 {
		return nil, errors.New("--scale, --tries and --budget must be positive, and there are no arguments")
	}
	return o, nil
}

// run measures all features, shows the table and publishes it. If a feature
// cannot be measured, it goes on with the next.
func (o *options) run(stdout io.Writer) error {
	r := newResult(o.command)
	var errs []error
	for _, f := range o.features {
		small := max(1, int(float64(f.size)*o.scale)/growthOfSize)
		measured := featureResult{Name: f.name, About: f.about}
		for _, size := range []int{small, growthOfSize * small} {
			fmt.Fprintf(os.Stderr, "%s: %d %s\n", f.name, size, f.about)
			figures, err := o.measureInChild(f, size)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, size %d: %w", f.name, size, err))
			}
			measured.Sizes = append(measured.Sizes, sizeResult{size, figures})
		}
		r.Features = append(r.Features, measured)
	}
	r.table(stdout)
	if o.publish != "" {
		errs = append(errs, r.publish(o.publish))
	}
	return errors.Join(errs...)
}
