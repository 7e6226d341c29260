/* All ops for one dtype, and the loop over a program's ops. Included once per dtype. */
#include "linear.h"
#include "rowwise.h"
#include "attention.h"
#include "walk.h"
