package route_test

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about the routes of a node, each in a network
// namespace. Their steps, besides the standard ones:
//
//	route SOURCE DESTINATION [INTERFACE [MARK]]   prints the way of a packet, or the code and text of
//	                                       the cause why it fails; without an interface, this
//	                                       node sends the packet; SOURCE unknown is a client
//	                                       that no route leads to
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Namespace: true, Setup: func(*script.Env) (map[string]script.Command, error) {
		return map[string]script.Command{"route": ask}, nil
	}})
}

func ask(_ *script.Script, args []string) (string, error) {
	p := route.Packet{Destination: netip.MustParseAddr(args[1])}
	p.Source, _ = netip.ParseAddr(args[0])
	if p.OfNode = len(args) == 2 && p.Source.IsValid(); len(args) > 2 {
		p.In = args[2]
	}
	if len(args) > 3 {
		mark, err := strconv.Atoi(args[3])
		if p.Mark = uint32(mark); err != nil {
			return "", err
		}
	}
	routes, err := route.Open()
	if err != nil {
		return "", err
	}
	defer routes.Close()
	f, err := route.NewSurvey(routes, "/").Facts(p)
	if err != nil {
		return "", err
	}
	c := route.Decide(&f)
	if c.Code != "" {
		return string(c.Code) + ": " + c.Text + "\n", nil
	}
	return f.Way() + "\n", nil
}
