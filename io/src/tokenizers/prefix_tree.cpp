#include "tokenizers/prefix_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>

namespace heddle {

PrefixTree::PrefixTree(std::vector<std::pair<std::string, std::int32_t>> texts) : nodes_(1) {
  constexpr std::size_t max_bytes = std::size_t{16} << 20U;  // a node for each: far more than known vocabularies have
  std::size_t bytes = 0;
  for (auto const& [text, number] : texts) {
    bytes += text.size();
  }
  if (bytes > max_bytes) {
    throw DataError("the pieces have {} bytes together; {} MiB at most are read", bytes, max_bytes >> 20U);
  }
  std::ranges::stable_sort(texts, {}, &std::pair<std::string, std::int32_t>::first);
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, texts.size(), 0}};  // of the texts below each node
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    auto [at, end, depth] = ranges[node];
    for (; at < end && texts[at].first.size() == depth; ++at) {
      nodes_[node].number = depth == 0 ? -1 : texts[at].second;
    }
    nodes_[node].first = static_cast<std::uint32_t>(nodes_.size());
    while (at < end) {
      char const byte = texts[at].first[depth];
      std::size_t const begin = at;
      while (at < end && texts[at].first[depth] == byte) {
        ++at;
      }
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ranges.push_back({begin, at, depth + 1});
      ++nodes_[node].count;
    }
  }
}

PrefixTree::Node const* PrefixTree::child_of(Node const& node, unsigned char byte) const {
  Node const* const first = nodes_.data() + node.first;
  Node const* const end = first + node.count;
  Node const* const found =
      std::lower_bound(first, end, byte, [](Node const& child, unsigned char wanted) { return child.byte < wanted; });
  return found != end && found->byte == byte ? found : nullptr;
}

}  // namespace heddle
