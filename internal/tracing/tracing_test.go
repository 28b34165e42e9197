package tracing

import (
	"strings"
	"testing"
)

func TestWhetherThereAreTraces(t *testing.T) {
	const url = "http://127.0.0.1:4318"
	for _, tt := range []struct {
		env  map[string]string
		want bool
		says string
	}{
		{map[string]string{}, false, ""},
		{map[string]string{envEndpoint: url}, true, ""},
		{map[string]string{envTracesEndpoint: url + "/x"}, true, ""},
		{map[string]string{envEndpoint: url, envDisabled: "True"}, false, ""},
		{map[string]string{envEndpoint: url, envExporter: "none"}, false, ""},
		{map[string]string{envEndpoint: url, envExporter: "zipkin"}, false, envExporter},
		{map[string]string{envEndpoint: url, envProtocol: "grpc"}, false, envProtocol},
		{map[string]string{envEndpoint: url, envProtocol: "grpc", envTracesProtocol: otlpProtocol}, true, ""},
		{map[string]string{envEndpoint: "127.0.0.1:4318"}, false, envEndpoint},
		{map[string]string{envEndpoint: url, envHeaders: "authorization=Bearer%20s3cret, x=y"}, true, ""},
		{map[string]string{envEndpoint: url, envHeaders: "authorization:Bearer s3cret"}, false, envHeaders + ": must"},
		{map[string]string{envEndpoint: url, envTracesHeaders: "authorization=Bearer%zzs3cret"}, false, envTracesHeaders + ": must"},
		{map[string]string{envTracesEndpoint: "unix:///x", envEndpoint: url}, false, envTracesEndpoint},
	} {
		got, err := wanted(func(name string) string { return tt.env[name] })
		if got != tt.want || (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: %v, %v; want %v, %q", tt.env, got, err, tt.want, tt.says)
		}
	}
}
