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
	for i := range all {
		todo = append(todo, c.checks(&all[i].service, all[i].expect)...)
	}
	if len(todo) == 0 {
		t.Fatal("got no checks")
	}
	todo.run(t)
	t.Logf("%d checks", len(todo))
}
