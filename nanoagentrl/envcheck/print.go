package envcheck

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteJSON writes the report as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// WriteText writes the report for people: the verdict, a table, and what is missing.
func (r *Report) WriteText(w io.Writer) error {
	t := &table{}
	t.line("%s\n", r.verdict())
	t.row("Go", "%s %s/%s, %s", r.Go.Version, r.Go.OS, r.Go.Arch, r.cgo())
	t.row("CPU", "%s", r.cores())
	t.row("Memory", "%s, %s available", size(r.Memory.TotalBytes), size(r.Memory.AvailableBytes))
	t.row("Disk", "%s free in %s", size(r.Disk.FreeBytes), r.Disk.Folder)
	if r.Backend.AutoError == "" {
		t.row("Backend", "auto picks %s: %s", r.Backend.Kind, r.Backend.Reason)
	} else {
		t.row("Backend", "auto cannot be used; --set backend=go can")
	}
	r.pluginRows(t)
	t.row("Models", "%s", r.Models.summary())
	t.row("Hub cache", "%s", r.HubCache.summary())
	for i, d := range r.Data {
		t.row([]string{"Data", ""}[min(i, 1)], "%s", d.summary())
	}
	if len(r.Missing) > 0 {
		t.line("\nTo do")
	}
	for _, m := range r.Missing {
		t.line("%s", wrap("  - "+m.What+": "+m.Do, "    "))
	}
	t.line("\nNext: %s", r.Next)
	_, err := io.WriteString(w, strings.Join(t.rows, "\n")+"\n")
	return err
}

func (r *Report) verdict() string {
	if !r.Ready {
		return "Not ready to train: no backend works."
	}
	name := map[string]string{"xla": "XLA on the CPU", "cuda": "XLA on CUDA", "go": "pure Go"}[r.Backend.Kind]
	speed := fmt.Sprintf("%.0f GFLOPS in f32", r.Backend.GFLOPSF32)
	if r.Backend.GFLOPSBF16 > 0 {
		speed += fmt.Sprintf(", %.0f in bf16", r.Backend.GFLOPSBF16)
	}
	return fmt.Sprintf("Ready to train with %s: %s.", name, speed)
}

func (r *Report) cgo() string {
	switch {
	case r.Go.Cgo && r.Go.CCompiler != "":
		return "cgo with " + r.Go.CCompiler
	case r.Go.Cgo:
		return "cgo"
	}
	return "no cgo"
}

func (r *Report) cores() string {
	text := fmt.Sprintf("%d cores", r.CPU.Cores)
	if r.CPU.Cores == 1 {
		text = "1 core"
	}
	if r.CPU.UsableCores != r.CPU.Cores {
		text += fmt.Sprintf(", %d used", r.CPU.UsableCores)
	}
	if r.NVIDIADriver != "" {
		text += ", NVIDIA driver " + r.NVIDIADriver
	}
	return text
}

func (r *Report) pluginRows(t *table) {
	switch {
	case r.Plugin.Error != "":
		t.row("Plugin", "damaged")
	case !r.Plugin.Installed:
		t.row("Plugin", "none")
	default:
		t.row("Plugin", "%s, SHA-256 %.12s...", r.Plugin.Version, r.Plugin.SHA256)
		t.row("", "%s", r.Plugin.Path)
	}
}

func (l *ModelList) summary() string {
	names := make([]string, len(l.Found))
	for i, m := range l.Found {
		names[i] = fmt.Sprintf("%s (%s)", m.Name, size(uint64(m.Bytes)))
		if m.Format == "damaged" {
			names[i] = m.Name + " (damaged)"
		}
	}
	return listing(names, l.Folder)
}

func (d *DataDir) summary() string {
	names := make([]string, len(d.Sets))
	for i, s := range d.Sets {
		names[i] = s.Name
	}
	return listing(names, d.Folder)
}

// listing names a folder and what is in it, in lines of the table.
func listing(names []string, folder string) string {
	if len(names) == 0 {
		return "none in " + folder
	}
	indent := strings.Repeat(" ", labelWidth)
	return fmt.Sprintf("%d in %s\n%s", len(names), folder, wrap(indent+strings.Join(names, ", "), indent))
}

const labelWidth = 11

type table struct{ rows []string }

func (t *table) line(format string, args ...any) {
	t.rows = append(t.rows, fmt.Sprintf(format, args...))
}

func (t *table) row(label, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !strings.Contains(text, "\n") {
		text = wrap(text, strings.Repeat(" ", labelWidth))
	}
	t.line("%-*s%s", labelWidth, label, text)
}

// wrap breaks a line at spaces so that it has about 100 characters; indent begins each line but the first.
func wrap(text, indent string) string {
	const width = 100
	head := len(text) - len(strings.TrimLeft(text, " "))
	out, length := text[:head], head
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len(word) > width:
			out, length = out+"\n"+indent, len(indent)
		default:
			out, length = out+" ", length+1
		}
		out, length = out+word, length+len(word)
	}
	return out
}

func size(bytes uint64) string {
	if bytes >= 1_000_000_000 {
		return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
	}
	return fmt.Sprintf("%.0f MB", float64(bytes)/1e6)
}
