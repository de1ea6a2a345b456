package packet

import "testing"

// scenario is a service and what becomes of attempts to reach it.
type scenario struct {
	service
	// expect are lines as parseExpectations reads them.
	expect string
}

// runScenarios serves all scenarios and then runs all their checks.
func (c *cluster) runScenarios(t *testing.T, all []scenario) {
	t.Helper()
	var services []*service
	for i := range all {
		services = append(services, &all[i].service)
	}
	c.serve("scenarios", services...)
	c.expect(t, all)
}

// expect runs the checks of scenarios that are served.
func (c *cluster) expect(t *testing.T, all []scenario) {
	t.Helper()
	var todo checks
	for i := range all {
		todo = append(todo, c.checks(&all[i].service, all[i].expect)...)
	}
	if len(todo) == 0 {
		t.Fatal("nothing to check")
	}
	todo.run(t)
	t.Logf("%d checks", len(todo))
}
