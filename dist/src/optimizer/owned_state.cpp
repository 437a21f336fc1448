#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/digest.hpp>
#include <heddle/dist/optimizer/buffer_parts.hpp>
#include <heddle/dist/optimizer/owned_state.hpp>
#include <span>

namespace heddle {

namespace {

constexpr std::array<char const*, 3> tensor_names{"parameter", "first moment of", "second moment of"};

std::uint64_t digest_of(Tensor const& tensor, IndexRange const& range) {
  auto const element = static_cast<std::int64_t>(size_of(tensor.dtype()));
  auto const* const bytes = static_cast<std::byte const*>(tensor.raw()) + range.begin * element;
  return digest(std::span(bytes, static_cast<std::size_t>(range.count() * element)));
}

}  // namespace

OwnedState::OwnedState(ParameterSet const& parameters, Optimizer const& optimizer,
                       std::vector<IndexRange> const& blocks)
    : parameters_(parameters), first_moments_(optimizer.first_moments()), second_moments_(optimizer.second_moments()) {
  for (std::size_t index = 0; index < parameters.all().size(); ++index) {
    for (IndexRange const& range : intersection({elements_of(parameters.all()[index])}, blocks)) {
      std::int64_t before = 0;
      for (IndexRange const& part : optimizer.parts()) {
        if (range.begin < part.end) {
          pieces_.push_back({.range = range, .parameter = index, .moments = before + range.begin - part.begin});
          break;
        }
        before += part.count();
      }
    }
  }
  std::ranges::sort(pieces_, {}, [](Piece const& piece) { return piece.range.begin; });
}

std::uint64_t OwnedState::version() const {
  return parameters_.all().empty() ? 0 : parameters_.all().front().version;
}

void OwnedState::begin() {
  comparable_ = recorded_ == version();
}

void OwnedState::compare(IndexRange const& block) {
  if (!comparable_) {
    return;
  }
  for (Piece& piece : pieces_of(block)) {
    auto const now = digests_of(piece);
    for (std::size_t tensor = 0; tensor < now.size(); ++tensor) {
      piece.damaged[tensor] = piece.damaged[tensor] || now[tensor] != piece.digests[tensor];
    }
  }
}

void OwnedState::record(IndexRange const& block) {
  for (Piece& piece : pieces_of(block)) {
    piece.digests = digests_of(piece);
  }
}

void OwnedState::end() {
  recorded_ = version();
}

void OwnedState::forget() {
  recorded_.reset();
  for (Piece& piece : pieces_) {
    piece.damaged = {};
  }
}

std::vector<std::string> OwnedState::damaged() const {
  std::vector<std::string> names;
  for (Piece const& piece : pieces_) {
    auto const now = recorded_ == version() ? digests_of(piece) : piece.digests;
    for (std::size_t tensor = 0; tensor < now.size(); ++tensor) {
      if (piece.damaged[tensor] || now[tensor] != piece.digests[tensor]) {
        names.push_back(
            fmt::format("{} {}", tensor_names[tensor], describe(parameters_.all()[piece.parameter], piece.range)));
      }
    }
  }
  return names;
}

std::span<OwnedState::Piece> OwnedState::pieces_of(IndexRange const& block) {
  auto const begin_of = [](Piece const& piece) { return piece.range.begin; };
  auto const first = std::ranges::lower_bound(pieces_, block.begin, {}, begin_of);
  return {first, std::ranges::lower_bound(first, pieces_.end(), block.end, {}, begin_of)};
}

std::array<std::uint64_t, 3> OwnedState::digests_of(Piece const& piece) const {
  IndexRange const kept{piece.moments, piece.moments + piece.range.count()};
  return {digest_of(parameters_.values(), piece.range), digest_of(first_moments_, kept),
          digest_of(second_moments_, kept)};
}

}  // namespace heddle
