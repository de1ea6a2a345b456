package app

import "github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"

// apiStatus returns the contact with the API server for the command nftproxy,
// nil with --manifests.
func (s *server) apiStatus() *socket.APIStatus {
	if s.client == nil {
		return nil
	}
	state := s.contact.State()
	api := &socket.APIStatus{
		Answered: state.Answered, Failed: state.Failed, Heard: state.Heard,
		AheadSeconds: state.Ahead.Seconds(), Compared: state.Compared,
	}
	if state.Err != nil {
		api.Error = oneLine(state.Err).Error()
	}
	return api
}
