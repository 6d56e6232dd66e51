// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestInBrowser opens a page in a browser, as wide as a screen and as a telephone, light and dark. It is skipped without one.
func TestInBrowser(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	f := newFake(define(widgets, "v1"), define("pieces.quite-a-long-name-of-a-group.example.com", "v1"), define("secrets.closed.example.com", "v1"))
	f.fill(widgetsPath, 100, 10_000)
	f.fill("/apis/quite-a-long-name-of-a-group.example.com/v1/pieces", 50, 10_000)
	found, _ := report(t, f, "")
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	out, err := os.Create(file)
	expect.NoError(t, err)
	expect.NoError(t, found.printHTML(out, time.Unix(0, 0)))
	// The title says how wide the content is.
	_, err = out.WriteString("<script>document.title = document.documentElement.scrollWidth</script>")
	expect.NoError(t, err)
	expect.NoError(t, out.Close())

	movable := map[string]color.RGBA{"light": {0x24, 0x68, 0xc8, 0xff}, "dark": {0x6a, 0xa5, 0xf8, 0xff}}
	page := map[string]color.RGBA{"light": {0xff, 0xff, 0xff, 0xff}, "dark": {0x12, 0x17, 0x1e, 0xff}}
	for scheme, flag := range map[string]string{"light": "--blink-settings=preferredColorScheme=1", "dark": "--blink-settings=preferredColorScheme=0"} {
		for _, width := range []int{1200, 400} {
			picture := filepath.Join(dir, fmt.Sprintf("%s-%d.png", scheme, width))
			size := fmt.Sprintf("--window-size=%d,1600", width)
			dom := browse(t, browser, file, flag, size, "--dump-dom")
			expect.Contains(t, dom, fmt.Sprintf("<title>%d</title>", width))
			browse(t, browser, file, flag, size, "--screenshot="+picture)
			shown := readPNG(t, picture)
			if got := shown.At(width-2, 1); rgba(got) != page[scheme] {
				t.Errorf("%s at %d pixels: the background is %v", scheme, width, got)
			}
			// The bars of the whole and of the largest group.
			if longest := longestRow(shown, movable[scheme]); longest < width*8/10 || longest > width {
				t.Errorf("%s at %d pixels: the longest bar has %d", scheme, width, longest)
			}
		}
	}
}

func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no browser: install chromium-headless-shell")
	return ""
}

// browse returns what the browser prints.
func browse(t *testing.T, browser, file string, flags ...string) string {
	t.Helper()
	flags = append(flags, "--headless", "--hide-scrollbars", "--disable-gpu", "--user-data-dir="+t.TempDir())
	if os.Getuid() == 0 {
		flags = append(flags, "--no-sandbox") // which does not start for root
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var errOut strings.Builder
	command := exec.CommandContext(ctx, browser, append(flags, "file://"+file)...)
	command.Stderr = &errOut
	out, err := command.Output()
	expect.NoError(t, err, "%s", &errOut)
	return string(out)
}

func readPNG(t *testing.T, path string) image.Image {
	t.Helper()
	file, err := os.Open(path)
	expect.NoError(t, err)
	defer file.Close()
	picture, err := png.Decode(file)
	expect.NoError(t, err)
	return picture
}

func rgba(c color.Color) color.RGBA { return color.RGBAModel.Convert(c).(color.RGBA) }

// longestRow returns the length of the longest row of pixels of a color.
func longestRow(picture image.Image, want color.RGBA) (longest int) {
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		row := 0
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			if rgba(picture.At(x, y)) != want {
				row = 0
				continue
			}
			row++
			longest = max(longest, row)
		}
	}
	return longest
}
