package main

// suite is a package of tests.
type suite struct {
	dir, pkg string // the folder of its module, and the package
	random   bool   // it has the flag -seeds
	features []feature
}

// feature is what a group of tests shows.
type feature struct {
	name  string
	tests []string // names of tests, possibly with patterns of subtests
}

// suites returns what the kit runs.
func suites() []suite {
	return []suite{
		{".", "./test/packet", false, []feature{
			{"ClusterIP, NodePort, external and LoadBalancer IPs, ipMode", []string{"TestAddresses"}},
			{"types, labels and families of Services", []string{"TestKindsOfServices", "TestServiceTypeChanges"}},
			{"nodePortAddresses", []string{"TestNodePortAddresses", "TestNodePortsFollowAddresses"}},
			{"loadBalancerSourceRanges", []string{"TestSourceRanges"}},
			{"traffic policies", []string{"TestTrafficPolicyLocal"}},
			{"conditions, terminating endpoints, EndpointSlices", []string{
				"TestConditions", "TestSlices", "TestEndpointMovesToAnotherSlice",
			}},
			{"session affinity", []string{"TestAffinity", "TestAffinityLocal", "TestAffinityTimeout"}},
			{"no endpoints", []string{"TestNoEndpoints"}},
			{"UDP flows", []string{"TestUDPFlows", "TestUDPFlowBeforeTheService"}},
			{"SCTP", []string{"TestSCTP"}},
			{"hairpin", []string{"TestHairpin"}},
			{"topology hints: zones and nodes", []string{"TestHints"}},
			{"local traffic, masquerading", []string{"TestDetectLocalModes", "TestMasqueradeAll"}},
			{"pods behind a bridge", []string{"TestBridgeNetfilter"}},
			{"unallocated addresses of ServiceCIDRs", []string{"TestServiceCIDRs"}},
			{"health-check NodePorts", []string{"TestHealthCheckNodePort"}},
			{"established connections, changes and restarts under traffic", []string{
				"TestEstablishedConnections", "TestScaling", "TestRestart",
			}},
			{"equal shares of endpoints", []string{"TestDistribution"}},
		}},
		{"test/apiserver", ".", false, []feature{
			{"healthz, livez", []string{"TestContract/(answers|leaving)/^(leaving-)?(healthz|livez)$"}},
			{"API server: kubectl, changes, absence", []string{"TestServices", "TestKubectl", "TestAPIServerAway"}},
		}},
		{"test/apiserver", "./differential", true, []feature{
			{"random clusters, compared with kube-proxy", []string{"TestDifferential"}},
		}},
	}
}
