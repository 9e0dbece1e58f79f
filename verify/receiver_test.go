package verify_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/sig"
)

// What this module signs, a receiver in another language verifies.
func TestPythonReceiver(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	type request struct {
		Secret  string      `json:"secret"`
		Now     int64       `json:"now"`
		Headers http.Header `json:"headers"`
		Body    []byte      `json:"body"`
	}
	var in bytes.Buffer
	var want []string
	ask := func(r request, answer string) {
		require.NoError(t, json.NewEncoder(&in).Encode(r))
		want = append(want, answer)
	}
	ts := stamp(0)
	for _, s := range []string{secret, sig.NewSecret(), sig.NewSecret()} {
		for _, b := range []string{"", body, extended, "\x00\xff\r\n", "Весна · 春 · Frühling", strings.Repeat("x", 100_000)} {
			raw := []byte(b)
			key, err := sig.NewKey(s)
			require.NoError(t, err)
			standard, err := sig.NewStandardKey(s)
			require.NoError(t, err)
			old, err := sig.NewKey(other)
			require.NoError(t, err)
			mac, std, oldMAC := key.Elido(ts, raw), standard.Standard("55120", ts, raw), old.Elido(ts, raw)
			schemes := []http.Header{
				headers(sig.HeaderSignature, string(sig.AppendElido(nil, mac)), sig.HeaderTimestamp, ts),
				headers(sig.HeaderSignature, string(sig.AppendElido(nil, oldMAC)),
					sig.HeaderSignaturePrevious, string(sig.AppendElido(nil, mac)), sig.HeaderTimestamp, ts),
				headers(sig.HeaderTimed, string(sig.AppendTimed(nil, ts, mac))),
				headers(sig.HeaderTimed, string(sig.AppendTimed(nil, ts, oldMAC, mac))),
				headers(sig.HeaderStandardID, "55120", sig.HeaderStandardTimestamp, ts,
					sig.HeaderStandardSignature, string(sig.AppendStandard(nil, std))),
				headers(sig.HeaderStandardID, "55120", sig.HeaderStandardTimestamp, ts,
					sig.HeaderStandardSignature, string(sig.AppendStandard(nil, oldMAC, std))),
			}
			schemes = append(schemes, merge(schemes[0], schemes[2], schemes[4]))
			for _, h := range schemes {
				ask(request{s, now(), h, raw}, "ok")
				ask(request{s, now() + 400, h, raw}, "no")
				ask(request{third, now(), h, raw}, "no")
				ask(request{s, now(), h, append([]byte("x"), raw...)}, "no")
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/receiver.py")
	cmd.Stdin = &in
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	require.NoError(t, cmd.Run(), stderr.String())
	require.Equal(t, want, strings.Fields(out.String()))
}
