#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace horon {

// Without blanks, tabs and line breaks at both ends.
std::string_view trim(std::string_view text);

// Splits at separators and trims each piece; an empty text has no pieces.
std::vector<std::string> split(std::string_view text, char separator);

// Parses a decimal number; nothing unless it is the whole text.
std::optional<double> parse_number(std::string_view text);

// Parses an integer in [low, high]; throws UsageError naming `what`, the text and the range.
int64_t parse_integer(std::string_view text, std::string_view what, int64_t low, int64_t high);

// Parses bytes: "64KB", "100MB", "2GiB", "4096". K, M, G, T are powers of 1024. Throws UsageError.
uint64_t parse_bytes(std::string_view text);

// "4 B", "64 KB", "100 MB", "1.5 GB", in steps of 1024.
std::string format_bytes(uint64_t bytes);

// The value in a line of a settings file, without quotes or a trailing # comment. UsageError
// beginning with `where` if quotes do not match.
std::string unquote(std::string_view text, const std::string& where);

// Quotes a word for sh.
std::string quote_for_shell(std::string_view word);

// The candidate within two edits of `word`, else empty; for "did you mean 'gloo'?".
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// 64-bit FNV-1a; stable across machines and versions.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0xcbf29ce484222325ULL);
inline uint64_t hash_text(std::string_view text) { return hash_bytes(text.data(), text.size()); }

}  // namespace horon
