#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/digest.hpp>
#include <heddle/dist/optimizer/buffer_shards.hpp>
#include <heddle/dist/optimizer/owned_state.hpp>
#include <span>

namespace heddle {

namespace {

std::uint64_t digest_of(Tensor const& tensor) {
  auto const* const bytes = static_cast<std::byte const*>(tensor.raw());
  return digest(std::span(bytes, static_cast<std::size_t>(tensor.bytes())));
}

}  // namespace

OwnedState::OwnedState(ParameterSet const& parameters, Optimizer const& optimizer,
                       std::vector<IndexRange> const& blocks)
    : parameters_(parameters) {
  for (Parameter const* const parameter : parameters.trained()) {
    for (IndexRange const& range : intersection({elements_of(*parameter)}, blocks)) {
      pieces_.push_back({range, parameter, "", parameters.values_in(range)});
      for (std::string const& key : parameter->state) {
        if (parameter->whole_state.contains(key)) {
          continue;
        }
        pieces_.push_back({range, parameter, key, optimizer.state_in(key, range)});
      }
    }
  }
}

std::uint64_t OwnedState::version() const {
  return parameters_.all().empty() ? 0 : parameters_.all().front().version;
}

void OwnedState::begin() {
  comparable_ = is_recorded();
}

void OwnedState::compare(IndexRange const& block) {
  if (!comparable_) {
    return;
  }
  for (Piece& piece : pieces_of(block)) {
    piece.damaged = piece.damaged || digest_of(piece.elements) != piece.digest;
  }
}

void OwnedState::record(IndexRange const& block) {
  for (Piece& piece : pieces_of(block)) {
    piece.digest = digest_of(piece.elements);
  }
}

void OwnedState::end() {
  recorded_ = version();
}

void OwnedState::forget() {
  recorded_.reset();
  for (Piece& piece : pieces_) {
    piece.damaged = false;
  }
}

std::vector<std::string> OwnedState::damaged() const {
  std::vector<std::string> names;
  for (Piece const& piece : pieces_) {
    if (piece.damaged || (is_recorded() && digest_of(piece.elements) != piece.digest)) {
      names.push_back(piece.key.empty() ? fmt::format("parameter {}", describe(*piece.parameter, piece.range))
                                        : fmt::format("{} of {}", piece.key, describe(*piece.parameter, piece.range)));
    }
  }
  return names;
}

std::span<OwnedState::Piece> OwnedState::pieces_of(IndexRange const& block) {
  auto const begin_of = [](Piece const& piece) { return piece.range.begin; };
  auto const first = std::ranges::lower_bound(pieces_, block.begin, {}, begin_of);
  return {first, std::ranges::lower_bound(first, pieces_.end(), block.end, {}, begin_of)};
}

}  // namespace heddle
