package sig

import (
	"bytes"
	"testing"
)

var body600 = bytes.Repeat([]byte("0123456789"), 60)

func BenchmarkSign(b *testing.B) {
	key, err := NewKey("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("elido/600B", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			key.Elido("1790068442", body600)
		}
	})
	b.Run("standard/600B", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			key.Standard("55120", "1790068442", body600)
		}
	})
	b.Run("elido/header", func(b *testing.B) {
		b.ReportAllocs()
		var buf [ElidoLen]byte
		for b.Loop() {
			AppendElido(buf[:0], key.Elido("1790068442", body600))
		}
	})
	b.Run("elido/parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				key.Elido("1790068442", body600)
			}
		})
	})
}

func BenchmarkNewKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = NewKey("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=")
	}
}

func BenchmarkDecodeHex(b *testing.B) {
	var m MAC
	for b.Loop() {
		DecodeHex(&m, "77beda017ba45b585d04d9c82f7a80fca8e3914550f056ab0af92b71e2c5035a")
	}
}
