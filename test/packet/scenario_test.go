package packet

import "testing"

// scenario is a service and the expected outcome of attempts to reach it.
type scenario struct {
	service
	// expect has the lines that parseExpectations parses.
	expect string
}

// runScenarios serves all scenarios and then runs their checks.
func (c *cluster) runScenarios(t *testing.T, all []scenario) {
	t.Helper()
	var services []*service
	for i := range all {
		services = append(services, &all[i].service)
	}
	c.serve("scenarios", services...)
	c.expect(t, all)
}

// expect runs the checks of scenarios that the proxies serve.
func (c *cluster) expect(t *testing.T, all []scenario) {
	t.Helper()
	var todo checks
	ends := make([]int, len(all)) // of the checks of each scenario
	for i := range all {
		todo = append(todo, c.checks(&all[i].service, all[i].expect)...)
		ends[i] = len(todo)
	}
	if len(todo) == 0 {
		t.Fatal("got no checks")
	}
	// The checks of all scenarios run concurrently.
	errs, begin := todo.errors(t.Context()), 0
	for i, end := range ends {
		t.Run(all[i].name, func(t *testing.T) { todo[begin:end].report(t, errs[begin:end]) })
		begin = end
	}
	t.Logf("%d checks", len(todo))
}
