#include "masks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/readable.hpp>

#include "inspection/page/matrix.hpp"

namespace heddle {
namespace {

constexpr std::int64_t max_cells = 48;  ///< on an axis

/// Positions that show what the mask does.
std::int64_t drawn_positions(AttentionMask const& mask) {
  constexpr std::int64_t usual = 24;
  constexpr std::int64_t max = 2048;
  std::int64_t const reach = std::max<std::int64_t>({mask.left, mask.right, 1}) * mask.block;
  std::int64_t const wanted = mask.is_local() ? std::clamp(4 * reach, usual, max) : usual;
  // Whole cells.
  std::int64_t const each = (wanted + max_cells - 1) / max_cells;
  return (wanted + each - 1) / each * each;
}

boost::json::object drawn(AttentionMask const& mask) {
  std::int64_t const positions = drawn_positions(mask);
  std::int64_t const prefix = mask.is(MaskKind::prefix) ? positions / 3 : 0;
  std::int64_t const each = (positions + max_cells - 1) / max_cells;
  std::int64_t const cells = positions / each;
  std::vector<double> share(static_cast<std::size_t>(cells * cells));
  for (std::int64_t query = 0; query < positions; ++query) {
    for (std::int64_t key = 0; key < positions; ++key) {
      if (is_visible(mask, prefix, query, key)) {
        share[static_cast<std::size_t>(query / each * cells + key / each)] += 1 / static_cast<double>(each * each);
      }
    }
  }
  return {{"mask", mask_words(mask)},
          {"positions", positions},
          {"prefix", prefix},
          {"matrix", matrix_to_json(share, cells, {0, 1})}};
}

/// "5 tokens before", "4 tokens on each side", "5 tokens before and 3 after".
std::string reach_words(AttentionMask const& mask, std::string const& unit) {
  std::string const before = fmt::format("{}{}", readable_count(mask.left), unit);
  if (mask.right == 0) {
    return before + " before";
  }
  return mask.left == mask.right ? before + " on each side"
                                 : fmt::format("{} before and {} after", before, readable_count(mask.right));
}

/// The rest of a local mask, where it is not the usual one.
std::string more_words(AttentionMask const& mask) {
  std::string words;
  if (mask.global_tokens > 0) {
    words += fmt::format(", {} global token{}", readable_count(mask.global_tokens), mask.global_tokens > 1 ? "s" : "");
  }
  if (mask.hides_later && mask.right > 0) {
    words += ", none later than the query";
  } else if (mask.is(MaskKind::blocks) && !mask.hides_later && mask.right == 0) {
    words += ", the whole of the query's block";
  }
  return words;
}

}  // namespace

std::string mask_words(AttentionMask const& mask) {
  if (!mask.is_local()) {
    return describe(mask);
  }
  if (mask.is(MaskKind::window)) {
    return fmt::format("window of {}{}", reach_words(mask, mask.left == 1 ? " token" : " tokens"), more_words(mask));
  }
  return fmt::format("blocks of {} token{}, {}{}", readable_count(mask.block), mask.block == 1 ? "" : "s",
                     reach_words(mask, ""), more_words(mask));
}

boost::json::array masks_to_json(std::vector<AttentionSublayer> const& sublayers,
                                 std::vector<ObservedAttention> const& calls) {
  std::vector<AttentionMask> masks;
  std::vector<boost::json::array> used_by;
  for (std::size_t index = 0; index < calls.size(); ++index) {
    auto const place = static_cast<std::size_t>(std::ranges::find(masks, calls[index].mask) - masks.begin());
    if (place == masks.size()) {
      masks.push_back(calls[index].mask);
      used_by.emplace_back();
    }
    used_by[place].emplace_back(sublayers[index].path);
  }
  boost::json::array all;
  for (std::size_t place = 0; place < masks.size(); ++place) {
    boost::json::object mask = drawn(masks[place]);
    mask["sublayers"] = std::move(used_by[place]);
    all.push_back(std::move(mask));
  }
  return all;
}

}  // namespace heddle
