/* All ops for one kind of numbers, and the walk through a program of them. Included once per kind. */
#include "linear.h"
#include "rowwise.h"
#include "attention.h"
#include "walk.h"
