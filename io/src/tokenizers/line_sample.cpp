#include <heddle/core/base/random.hpp>
#include <heddle/io/tokenizers/line_sample.hpp>

namespace heddle {

void LineSample::add(std::size_t text, std::string_view line) {
  std::string without_reserved;
  if (line.find(reserved_character) != line.npos) {
    has_reserved_ = true;
    without_reserved = line;
    for (std::size_t at = 0; (at = without_reserved.find(reserved_character, at)) != line.npos;) {
      without_reserved.replace(at, reserved_character.size(), " ");
    }
    line = without_reserved;
  }
  constexpr std::size_t max_bytes = 4096;
  std::uint32_t part = 0;
  while (line.size() > max_bytes) {
    std::size_t end = line.rfind(' ', max_bytes);
    if (end == line.npos || end == 0) {
      for (end = max_bytes; (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80; --end) {
      }
    }
    add_part(text, part++, line.substr(0, end));
    line.remove_prefix(end);
  }
  add_part(text, part, line);
  ++count_.at(text);
}

void LineSample::add_part(std::size_t text, std::uint32_t part, std::string_view line) {
  constexpr std::uint64_t seed = 0;
  std::uint64_t const number = count_.at(text);
  auto const words = Philox::words(seed, {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U),
                                          static_cast<std::uint32_t>(text), part});
  std::uint64_t const key = (std::uint64_t{words[0]} << 32U) | words[1];
  if (line.empty() || key > threshold_) {
    return;
  }
  lines_.at(text).push_back({key, std::string(line)});
  bytes_ += static_cast<std::int64_t>(line.size() + sizeof(Line));
  while (bytes_ > budget_ && size() > 1) {
    shrink();
  }
}

/// Halves the share of lines that stay.
void LineSample::shrink() {
  threshold_ /= 2;
  for (auto& lines : lines_) {
    std::erase_if(lines, [&](Line const& line) {
      bool const drop = line.key > threshold_;
      bytes_ -= drop ? static_cast<std::int64_t>(line.text.size() + sizeof(Line)) : 0;
      return drop;
    });
  }
}

}  // namespace heddle
