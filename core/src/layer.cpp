#include <heddle/core/layer.hpp>

namespace heddle {

Dropout make_dropout(Context const& context, double rate, std::string_view name, Side side) {
  Dropout dropout;
  if (context.training && rate > 0) {
    TokenRows const& rows = context.pack.rows(side);
    dropout.rate = static_cast<float>(rate);
    dropout.key = random_key(context.seed, name);
    dropout.step = context.step;
    dropout.sample = rows.sample;
    dropout.position = rows.position;
  }
  return dropout;
}

}  // namespace heddle
