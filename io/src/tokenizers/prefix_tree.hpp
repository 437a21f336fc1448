#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// Texts with a number each, of which all that a text begins with are found in one pass over its bytes.
class PrefixTree {
 public:
  /// The last one of equal texts counts; empty ones are left out.
  explicit PrefixTree(std::vector<std::pair<std::string, std::int32_t>> texts = {});

  bool empty() const noexcept { return nodes_.size() == 1; }

  /// Calls `visit(length, number)` for each text that `text` begins with, from the shortest on.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit const& visit) const {
    Node const* node = nodes_.data();
    for (std::size_t length = 1; length <= text.size(); ++length) {
      node = child_of(*node, static_cast<unsigned char>(text[length - 1]));
      if (node == nullptr) {
        return;
      }
      if (node->number >= 0) {
        visit(length, node->number);
      }
    }
  }

 private:
  struct Node {
    std::int32_t number = -1;  ///< of the text that ends here
    std::uint32_t first = 0;   ///< its children are neighbours, in the order of their bytes
    std::uint16_t count = 0;
    unsigned char byte = 0;
  };
  Node const* child_of(Node const& node, unsigned char byte) const;

  std::vector<Node> nodes_;
};

}  // namespace heddle
