package follow

import (
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Config is the configuration of Followers.
type Config struct {
	// NodeName is the name of this node in the API.
	NodeName string
	// Rules is the configuration of the rules in the tables.
	Rules ruleset.Config
	// Events receives warnings about objects.
	Events cluster.EventRecorder
	// Healthy reports whether the tables are up to date. Health checks fail
	// while it returns false.
	Healthy func() bool
	// History gets what happens to the tables.
	History *history.Log
	// Metrics gets the metrics of the followers.
	Metrics *metric.Set
}
